"""A tiny model of each family -> GGUF -> directory -> the same logits."""

import json
import struct

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen2Config, Qwen3Config

from backend.checkpoint import gguf_tokenizer
from backend.checkpoint.errors import CheckpointError, UnsupportedModel
from backend.checkpoint.gguf_convert import convert
from tests.checkpoint.gguf_samples import byte_tokenizer, random_model, write_model

torch.set_num_threads(1)

SIZES = {
    "vocab_size": 272,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": 257,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32}


def logits(model):
    ids = torch.arange(0, 240, 3)[None]
    with torch.no_grad():
        return model(ids).logits


def round_trip(tmp_path, config, arch, **extra):
    """The model, and what came back out of its GGUF file."""
    model = random_model(config)
    file = write_model(tmp_path / "tiny.gguf", model, arch, **extra)
    out = convert(file, tmp_path / "out", progress=False)
    return model, AutoModelForCausalLM.from_pretrained(out)


@pytest.mark.parametrize(
    ("arch", "config", "extra"),
    [
        ("llama", LlamaConfig(**SIZES, tie_word_embeddings=False), {}),
        ("llama", LlamaConfig(**SIZES, tie_word_embeddings=True, attention_bias=True, mlp_bias=True), {}),
        ("qwen2", Qwen2Config(**SIZES, rope_parameters={"rope_type": "default", "rope_theta": 1e6}), {}),
        (
            "qwen3",
            Qwen3Config(**SIZES | {"head_dim": 32}, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
            {},
        ),
        (
            "qwen2",
            Qwen2Config(**SIZES, rope_parameters=YARN),
            {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 32},
        ),
        (
            "gemma3",
            Gemma3TextConfig(**SIZES | {"num_hidden_layers": 7}, query_pre_attn_scalar=16, sliding_window=8),
            {"attention__sliding_window": 8},
        ),
    ],
    ids=["llama", "llama-tied-bias", "qwen2", "qwen3", "qwen2-yarn", "gemma3"],
)
def test_a_model_comes_back_with_the_same_logits(tmp_path, arch, config, extra):
    rope = config.rope_parameters
    theta = (rope.get("full_attention") or rope)["rope_theta"]
    model, back = round_trip(tmp_path, config, arch, rope__freq_base=float(theta), **extra)
    assert type(back) is type(model)
    torch.testing.assert_close(logits(back), logits(model), rtol=1e-5, atol=1e-5)


def test_llama3_frequencies_are_recognized_from_their_tensor(tmp_path):
    config = LlamaConfig(**SIZES | {"head_dim": 64}, rope_parameters=LLAMA3)
    model = random_model(config)
    plain = random_model(
        LlamaConfig(**SIZES | {"head_dim": 64}, rope_parameters={"rope_theta": 5e5, "rope_type": "default"})
    )
    divisors = plain.model.rotary_emb.inv_freq / model.model.rotary_emb.inv_freq
    file = write_with_tensor(tmp_path, model, divisors.numpy())
    assert json.loads((convert(file, tmp_path / "out", False) / "config.json").read_text())["rope_parameters"] == LLAMA3
    file = write_with_tensor(tmp_path, model, divisors.numpy() ** 2)
    with pytest.raises(UnsupportedModel, match="frequencies"):
        convert(file, tmp_path / "other", False)


def write_with_tensor(tmp_path, model, divisors):
    def tokenizer_and_factors(writer, size):
        byte_tokenizer(writer, size)
        writer.add_tensor("rope_freqs.weight", divisors)

    return write_model(tmp_path / "l3.gguf", model, "llama", tokenizer=tokenizer_and_factors, rope__freq_base=5e5)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "F16", "BF16"])
def test_quantized_matrices_come_back_as_what_they_stand_for(tmp_path, kind):
    kind = gguf.GGMLQuantizationType[kind]
    model, back = round_trip(tmp_path, Qwen3Config(**SIZES), "qwen3", quantized=kind)
    for name, value in back.state_dict().items():
        want = model.state_dict()[name].numpy()
        if "proj.weight" in name:
            want = gguf.quants.dequantize(gguf.quants.quantize(want, kind), kind).reshape(want.shape)
        assert torch.equal(value, torch.from_numpy(want)), name


def test_an_unknown_architecture_is_refused_by_name_before_any_work(tmp_path):
    model = random_model(LlamaConfig(**SIZES))
    file = write_model(tmp_path / "m.gguf", model, "mamba")
    with pytest.raises(UnsupportedModel, match=r"'mamba'.*llama, qwen2, qwen3, gemma3"):
        convert(file, tmp_path / "sub" / "out")
    assert not (tmp_path / "sub").exists()


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"expert_count": 8}, "mixture of experts"),
        ({"rope__dimension_count": 8}, "part of the head"),
        ({"rope__scaling__type": "longrope"}, "longrope"),
    ],
)
def test_what_the_dense_class_would_compute_otherwise_is_refused(tmp_path, extra, words):
    file = write_model(tmp_path / "m.gguf", random_model(LlamaConfig(**SIZES)), "llama", **extra)
    with pytest.raises(UnsupportedModel, match=words):
        convert(file, tmp_path / "out")


def test_an_unknown_pre_tokenizer_is_refused_by_name(tmp_path):
    def tokenizer(writer, size):
        byte_tokenizer(writer, size, pre="chameleon")

    file = write_model(tmp_path / "m.gguf", random_model(LlamaConfig(**SIZES)), "llama", tokenizer=tokenizer)
    with pytest.raises(UnsupportedModel, match="'chameleon'"):
        convert(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_that_transformers_would_load_otherwise_is_noticed(tmp_path, monkeypatch):
    file = write_model(tmp_path / "m.gguf", random_model(LlamaConfig(**SIZES)), "llama")
    monkeypatch.setattr(gguf_tokenizer.AutoTokenizer, "from_pretrained", lambda path: lambda text: {"input_ids": [0]})
    with pytest.raises(CheckpointError, match="as another one"):
        convert(file, tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_cut_short_or_no_gguf_at_all_is_refused(tmp_path):
    file = write_model(tmp_path / "m.gguf", random_model(LlamaConfig(**SIZES)), "llama")
    for length in (0, 3, 10, 500, file.stat().st_size - 1):
        (tmp_path / "cut.gguf").write_bytes(file.read_bytes()[:length])
        with pytest.raises(CheckpointError, match=r"GGUF|cut short"):
            convert(tmp_path / "cut.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text


NESTED = b"".join(struct.pack("<IQ", 9, 1) for _ in range(3000)) + struct.pack("<IQB", 0, 1, 7)


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [
        (b"general.alignment", 4, struct.pack("<I", 0)),
        (b"general.alignment", 8, gguf_text(b"x")),
        (b"split.count", 8, gguf_text(b"2")),
        (b"nested", 9, NESTED),
        (b"long", 9, struct.pack("<IQ", 0, 2**63)),
        (b"long", 9, struct.pack("<IQ", 8, 2**64 - 1)),
        (b"text", 8, struct.pack("<Q", 2**64 - 1)),
        (b"text", 8, gguf_text(b"\xff\xfe")),
        (b"kind", 77, b""),
    ],
)
def test_metadata_that_mean_nothing_are_refused_in_one_line(tmp_path, key, kind, value):
    place = tmp_path / "m.gguf"
    place.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_text(key) + struct.pack("<I", kind) + value)
    with pytest.raises(CheckpointError) as refused:
        convert(place, tmp_path / "out")
    assert str(place) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("dims", [(2**32, 2**32), (2**63, 2), (2**64 - 1,), (2**40,)])
def test_a_tensor_of_more_elements_than_the_file_can_hold_is_refused(tmp_path, dims):
    header = gguf_text(b"t") + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, 0)
    place = tmp_path / "m.gguf"
    place.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + header + bytes(64))
    with pytest.raises(CheckpointError, match="cut short: tensor t ends beyond the file"):
        convert(place, tmp_path / "out")


def test_a_missing_or_surplus_tensor_is_named(tmp_path):
    model = random_model(LlamaConfig(**SIZES))
    file = write_model(tmp_path / "m.gguf", model, "llama")
    renamed = file.read_bytes().replace(b"blk.1.attn_v.weight", b"blk.9.attn_v.weight")
    (tmp_path / "n.gguf").write_bytes(renamed)
    with pytest.raises(CheckpointError, match=r"lacks the tensor model.layers.1.self_attn.v_proj.weight"):
        convert(tmp_path / "n.gguf", tmp_path / "out")


def test_the_metadata_read_is_what_the_gguf_package_reads(tmp_path):
    from backend.checkpoint.gguf_file import GgufFile

    file = write_model(tmp_path / "m.gguf", random_model(LlamaConfig(**SIZES)), "llama")
    theirs = {key: field.contents() for key, field in gguf.GGUFReader(file).fields.items() if "GGUF." not in key}
    ours = GgufFile(file).meta
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        assert ours[key] == (pytest.approx(value) if isinstance(value, float) else value), key
