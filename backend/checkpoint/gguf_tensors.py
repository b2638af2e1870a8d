"""GGUF tensors -> Hugging Face names and layouts: what llama.cpp's converter changed is undone here."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from backend.checkpoint.errors import CheckpointError, UnsupportedModel
from backend.checkpoint.gguf_file import GgufFile, Tensor

Weights = npt.NDArray[np.float32]

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Gemma 3 has four norms in a block, and what others call post-attention norm comes before its feed-forward.
GEMMA3_BLOCK = BLOCK | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
CONFIG_ONLY = {"rope_freqs.weight"}  # read by gguf_rope


class Output(NamedTuple):
    """One tensor to write: its Hugging Face name, and how its values come about."""

    name: str
    source: Tensor
    restore: Callable[[Weights], Weights]

    def values(self) -> Weights:
        """The dequantized values in Hugging Face's layout, float32, of the source's shape."""
        return np.ascontiguousarray(self.restore(self.source.dequantized()))


def plan_tensors(gguf: GgufFile, arch: str, heads: int, kv_heads: int) -> list[Output]:
    """What to write, sorted by name. Reads no weights. Raises UnsupportedModel for a tensor that has no place."""
    outputs = []
    for name, tensor in gguf.tensors.items():
        if name not in CONFIG_ONLY:
            outputs.append(Output(hf_name(name, arch), tensor, _restorer(name, arch, heads, kv_heads)))
    return sorted(outputs, key=lambda output: output.name)


def hf_name(name: str, arch: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    stem, _, suffix = name.rpartition(".")
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    names = GEMMA3_BLOCK if arch == "gemma3" else BLOCK
    if suffix in ("weight", "bias") and stem in TOP:
        return f"{TOP[stem]}.{suffix}"
    if suffix in ("weight", "bias") and block and block[2] in names:
        return f"model.layers.{block[1]}.{names[block[2]]}.{suffix}"
    raise UnsupportedModel(f"tensor {name} has no place in a {arch} model")


def check_complete(outputs: list[Output], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise CheckpointError unless `outputs` are the `expected` names with their shapes, no more and no fewer."""
    found = {output.name: output.source.shape for output in outputs}
    for name in sorted(found.keys() ^ expected.keys()):
        what = "lacks the tensor" if name in expected else "has the surplus tensor"
        raise CheckpointError(f"the file {what} {name}")
    for name, shape in found.items():
        if shape != expected[name]:
            raise CheckpointError(f"tensor {name} has the shape {shape}; the configuration asks for {expected[name]}")


def _restorer(name: str, arch: str, heads: int, kv_heads: int) -> Callable[[Weights], Weights]:
    if arch == "llama" and re.search(r"\.attn_q\.(weight|bias)$", name):
        return partial(halves_from_pairs, heads=heads)
    if arch == "llama" and re.search(r"\.attn_k\.(weight|bias)$", name):
        return partial(halves_from_pairs, heads=kv_heads)
    if arch == "gemma3" and name.endswith("norm.weight"):
        return _minus_one
    return _as_it_is


def halves_from_pairs(rows: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """[heads * head_dim, ...]: the rows of each head from RoPE's pairs (0, h, 1, h+1, ...) back to halves (0, 1, ...).

    llama.cpp rotates neighbouring rows in llama models; Hugging Face rotates row i with row i + head_dim / 2.
    """
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _minus_one(weight: Weights) -> Weights:
    """Gemma's norms scale by 1 + w; the GGUF holds 1 + w."""
    return weight - np.float32(1)


def _as_it_is(weight: Weights) -> Weights:
    return weight
