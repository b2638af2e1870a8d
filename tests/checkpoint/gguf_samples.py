"""Tiny GGUF files for the tests, written as llama.cpp's converter writes them, from tiny transformers models."""

import re
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM

FORWARD = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA3 = FORWARD | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def random_model(config, seed=0):
    """A model whose norms and biases are random too, so that a mistake in any of them shows."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn_like(value) * 0.2)
    return model


def write_model(path: Path, model, arch: str, quantized=gguf.GGMLQuantizationType.F32, tokenizer=None, **extra) -> Path:
    """The whole model; matrices of blocks in the kind `quantized`, the rest in float32. `extra`: more arch keys."""
    config = model.config
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(config.head_dim)
    for key, value in extra.items():
        _add(writer, f"{arch}.{key.replace('__', '.')}", value)
    (tokenizer or byte_tokenizer)(writer, config.vocab_size)
    for name, value in model.state_dict().items():
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            _add_tensor(writer, name, value.numpy(), config, arch, quantized)
    return finish(writer, path)


def finish(writer, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer, key, value):
    add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
    add(key, value)


def byte_tokenizer(writer, size, pre="gpt-2"):
    """256 byte tokens, one merge, and control tokens up to `size`."""
    letters = _byte_letters()
    tokens = [*letters, "th", "<|endoftext|>", "<|im_end|>"]
    tokens += [f"<|extra_{i}|>" for i in range(size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 257 + [3] * (size - 257))
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(257)


def _byte_letters():
    """GPT-2's printable letter for each byte: itself if printable, else the next one from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(b) if b in printable else chr(256 + others.index(b)) for b in range(256)]


def _gguf_name(name, arch):
    stem, suffix = name.rsplit(".", 1)
    if stem in TOP:
        return f"{TOP[stem]}.{suffix}"
    layer, rest = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem).groups()
    return f"blk.{layer}.{(GEMMA3 if arch == 'gemma3' else FORWARD)[rest]}.{suffix}"


def _add_tensor(writer, name, value, config, arch, quantized):
    if arch == "llama" and re.search("q_proj|k_proj", name):
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        value = interleave(value, heads)
    if arch == "gemma3" and "norm" in name:
        value = value + 1
    if quantized != gguf.GGMLQuantizationType.F32 and "proj.weight" in name:
        writer.add_tensor(_gguf_name(name, arch), gguf.quants.quantize(value, quantized), raw_dtype=quantized)
    else:
        writer.add_tensor(_gguf_name(name, arch), np.ascontiguousarray(value))


def interleave(value, heads):
    """Row i and row i + half of each head become neighbours: one row at a time, so that it is plain to see."""
    dim = value.shape[0] // heads
    order = [h * dim + i + part for h in range(heads) for i in range(dim // 2) for part in (0, dim // 2)]
    return value[order]
