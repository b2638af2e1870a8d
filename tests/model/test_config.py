import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.model.config import ModelConfig
from backend.model.errors import ModelConfigError, UnsupportedModel
from backend.model.families import FAMILIES
from backend.model.rope import LinearScaling, Llama3Scaling, RopeConfig
from tests.model.tiny_models import Saved

GetSaved = Callable[[str], Saved]

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}


def parse(path: Path, base: dict[str, Any] = LLAMA, **changes: Any) -> ModelConfig:
    (path / "config.json").write_text(json.dumps(base | changes))
    return ModelConfig.from_directory(path)


def of(family: str) -> dict[str, Any]:
    return LLAMA | {"architectures": [family]}


def test_what_a_small_llama_config_leaves_out_has_transformers_defaults(tmp_path: Path) -> None:
    config = parse(tmp_path)
    assert (config.head_dim, config.num_kv_heads, config.rms_norm_eps) == (16, 4, 1e-6)
    assert config.layer_kinds[0].rope == RopeConfig(theta=10_000.0)
    assert not config.tie_word_embeddings
    assert config.attention_scale == 0.25
    assert config.eos_token_ids == ()


@pytest.mark.parametrize(
    ("style_4", "style_5"),
    [
        ({"rope_theta": 5e5}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
        (
            {"rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}},
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}},
            {
                "rope_parameters": {
                    "full_attention": {
                        "rope_type": "yarn",
                        "rope_theta": 10_000.0,
                        "factor": 4.0,
                        "original_max_position_embeddings": 128,
                    }
                }
            },
        ),
    ],
)
def test_both_styles_of_rope_read_the_same(tmp_path: Path, style_4: dict[str, Any], style_5: dict[str, Any]) -> None:
    assert parse(tmp_path, **style_4) == parse(tmp_path, **style_5)


def test_llama3_scaling_is_read_from_the_old_style(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    rope = parse(tmp_path, rope_theta=5e5, rope_scaling=scaling).layer_kinds[0].rope
    assert rope.theta == 5e5
    assert rope.scaling == Llama3Scaling(
        factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192
    )


def test_gemma3_in_the_old_style(tmp_path: Path) -> None:
    config = parse(
        tmp_path,
        of("Gemma3ForCausalLM"),
        num_hidden_layers=7,
        sliding_window=32,
        sliding_window_pattern=3,
        rope_theta=1e6,
        rope_local_base_freq=1e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    )
    assert [kind.window for kind in config.layer_kinds] == [32, 32, None, 32, 32, None, 32]
    assert config.layer_kinds[0].rope == RopeConfig(theta=1e4)
    assert config.layer_kinds[2].rope == RopeConfig(theta=1e6, scaling=LinearScaling(factor=8.0))
    assert config.head_dim == 256
    assert config.attention_scale == 256**-0.5
    assert config.embedding_scale == 8.0
    assert config.tie_word_embeddings
    assert config.activation == "gelu_tanh"


def test_gemma3_with_the_pattern_left_out_sees_everything_in_each_sixth_layer(tmp_path: Path) -> None:
    kinds = parse(tmp_path, of("Gemma3ForCausalLM"), num_hidden_layers=12).layer_kinds
    assert [layer for layer, kind in enumerate(kinds) if kind.window is None] == [5, 11]
    assert {kind.window for kind in kinds} == {4096, None}
    assert [kinds[0].rope.theta, kinds[5].rope.theta] == [1e4, 1e6]


def test_a_mistral_window_is_4096_unless_told_and_none_if_null(tmp_path: Path) -> None:
    windows = [
        {kind.window for kind in parse(tmp_path, of("MistralForCausalLM"), **changes).layer_kinds}
        for changes in ({}, {"sliding_window": 8}, {"sliding_window": None})
    ]
    assert windows == [{4096}, {8}, {None}]


@pytest.mark.parametrize("family", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_qwen_slides_only_where_it_says_so(tmp_path: Path, family: str) -> None:
    asleep = parse(tmp_path, of(family), sliding_window=8, max_window_layers=1)
    awake = parse(tmp_path, of(family), sliding_window=8, max_window_layers=1, use_sliding_window=True)
    assert [kind.window for kind in asleep.layer_kinds] == [None] * 4
    assert [kind.window for kind in awake.layer_kinds] == [None, 8, 8, 8]


def test_biases_and_head_size_by_family(tmp_path: Path) -> None:
    llama, qwen2 = parse(tmp_path, attention_bias=True, mlp_bias=True), parse(tmp_path, of("Qwen2ForCausalLM"))
    assert (llama.qkv_bias, llama.attention_output_bias, llama.mlp_bias) == (True, True, True)
    assert (qwen2.qkv_bias, qwen2.attention_output_bias, qwen2.mlp_bias) == (True, False, False)
    assert parse(tmp_path, of("Qwen3ForCausalLM")).head_dim == 128


def test_end_tokens_are_the_union_of_both_files(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [9, 2]}')
    assert parse(tmp_path, eos_token_id=5).eos_token_ids == (2, 5, 9)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert parse(tmp_path, eos_token_id=None).eos_token_ids == (7,)


def test_another_architecture_is_refused_by_name_with_the_supported_ones(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="architecture FalconForCausalLM is not supported") as caught:
        parse(tmp_path, of("FalconForCausalLM"))
    assert all(family in str(caught.value) for family in FAMILIES)
    with pytest.raises(UnsupportedModel, match="architecture not named"):
        parse(tmp_path, architectures=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, r"config.json: hidden_size = None: expected an integer >= 1"),
        ({"vocab_size": "many"}, r"config.json: vocab_size = 'many': expected an integer >= 1"),
        ({"num_hidden_layers": 0}, r"num_hidden_layers = 0: expected an integer >= 1"),
        ({"num_attention_heads": True}, r"num_attention_heads = True: expected an integer"),
        ({"num_key_value_heads": 3}, r"num_key_value_heads = 3: expected a divisor of num_attention_heads = 4"),
        ({"head_dim": 15}, r"head_dim = 15: expected an even number"),
        ({"rms_norm_eps": -1.0}, r"rms_norm_eps = -1.0: expected a number above 0"),
        ({"hidden_act": "relu"}, r"hidden_act = 'relu': expected one of silu, gelu_pytorch_tanh"),
        ({"tie_word_embeddings": "yes"}, r"tie_word_embeddings = 'yes': expected true or false"),
        ({"eos_token_id": "</s>"}, r"eos_token_id = '</s>': expected an integer or a list"),
        ({"architectures": "Llama"}, r"architectures = 'Llama': expected a list of strings"),
        ({"rope_scaling": 3}, r"rope_scaling = 3: expected an object"),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
            r"rope_scaling.type = 'dynamic': expected one of default, linear, llama3, yarn",
        ),
        ({"rope_parameters": {"rope_type": "longrope"}}, r"rope_parameters.rope_type = 'longrope'"),
        ({"rope_parameters": {"rope_type": "linear"}}, r"rope_parameters.factor = absent: expected a number"),
        ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor"),
        (
            {"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1}},
            r"high_freq_factor = 1: expected more than low_freq_factor = 4",
        ),
    ],
)
def test_a_wrong_value_is_named_with_file_and_key(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        parse(tmp_path, **changes)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("Gemma3ForCausalLM", {"sliding_window": None}, r"sliding_window = None: expected an integer"),
        ("Gemma3ForCausalLM", {"layer_types": ["full_attention"]}, r"layer_types .* expected 4 entries"),
        ("Gemma3ForCausalLM", {"layer_types": ["chunked"] * 4}, r"layer_types .* each one of full_attention"),
        ("Gemma3ForCausalLM", {"rope_parameters": {"rope_theta": 5.0}}, r"expected one object per layer type"),
        ("MistralForCausalLM", {"layer_types": ["full_attention"] * 4}, r"layer_types .* alike"),
    ],
)
def test_layers_that_make_no_sense_are_refused(
    tmp_path: Path, family: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelConfigError, match=message):
        parse(tmp_path, of(family), **changes)


@pytest.mark.parametrize("key", ["quantization_config", "use_bidirectional_attention"])
def test_a_feature_that_would_change_the_numbers_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(UnsupportedModel, match=key):
        parse(tmp_path, **{key: {"bits": 4} if key == "quantization_config" else True})


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_config_file_that_is_absent_or_broken_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelConfigError, match=r"config.json: "):
        ModelConfig.from_directory(tmp_path)


def test_equal_layers_share_one_kind(saved: GetSaved) -> None:
    config = ModelConfig.from_directory(saved("gemma3").path)
    assert len(set(config.layer_kinds)) == 2
    assert config.layer_kinds[0] is config.layer_kinds[2]
