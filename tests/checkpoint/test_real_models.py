"""SmolLM2 and Gemma 3, converted: configuration, weights tensor by tensor, and sensible words."""

import json

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from backend.checkpoint import default_model

torch.set_num_threads(1)


def continuation(directory, prompt, tokens=8):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory)
    ids = tokenizer(prompt, return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=tokens, do_sample=False)
    return tokenizer.decode(out[0, ids["input_ids"].shape[1] :])


def setting(directory, name, file="config.json"):
    return json.loads((directory / file).read_text())[name]


def assert_same_weights(gguf_path, directory):
    """Every tensor equals, bit for bit, what transformers' own GGUF loader makes of the file."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory))
    theirs = load_gguf_checkpoint(gguf_path, return_tensors=True, model_to_load=model)["tensors"]
    with safe_open(directory / "model.safetensors", "pt") as ours:
        assert set(ours.keys()) == set(theirs)
        for name, value in theirs.items():
            assert torch.equal(ours.get_tensor(name), value), name


def test_smollm2_knows_paris(smollm2_dir):
    assert " Paris" in continuation(smollm2_dir, "The capital of France is")


def test_gemma3_knows_paris(gemma3_dir):
    prompt = "The capital of Germany is Berlin. The capital of Italy is Rome. The capital of France is"
    assert continuation(gemma3_dir, prompt).startswith(" Paris.")


def test_smollm2s_configuration(smollm2_dir):
    assert setting(smollm2_dir, "architectures") == ["LlamaForCausalLM"]
    assert setting(smollm2_dir, "rope_parameters") == {"rope_type": "default", "rope_theta": 100000.0}
    assert setting(smollm2_dir, "rms_norm_eps") == 1e-5
    assert setting(smollm2_dir, "dtype") == "float32"
    assert setting(smollm2_dir, "tie_word_embeddings") is True
    assert setting(smollm2_dir, "eos_token_id", "generation_config.json") == [2, 0]


def test_gemma3s_configuration(gemma3_dir):
    assert setting(gemma3_dir, "architectures") == ["Gemma3ForCausalLM"]
    assert setting(gemma3_dir, "layer_types") == (["sliding_attention"] * 5 + ["full_attention"]) * 3
    assert setting(gemma3_dir, "sliding_window") == 512
    assert setting(gemma3_dir, "query_pre_attn_scalar") == setting(gemma3_dir, "head_dim") == 256
    rope = setting(gemma3_dir, "rope_parameters")
    assert {kind: value["rope_theta"] for kind, value in rope.items()} == {
        "full_attention": 1e6,
        "sliding_attention": 1e4,
    }
    assert setting(gemma3_dir, "eos_token_id", "generation_config.json") == [1, 106]


@pytest.mark.slow
@pytest.mark.nightly  # 24 s: what it says is compared every day
def test_smollm2s_weights_are_those_that_transformers_reads(smollm2_dir, tmp_path):
    assert_same_weights(default_model._fetch(tmp_path, progress=False), smollm2_dir)


@pytest.mark.slow
@pytest.mark.nightly
def test_gemma3s_weights_are_those_that_transformers_reads(gemma3_gguf, gemma3_dir):
    assert_same_weights(gemma3_gguf, gemma3_dir)
