"""Rotary position parameters: from GGUF's keys to the `rope_parameters` of transformers 5."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.checkpoint.errors import UnsupportedModel
from backend.checkpoint.gguf_file import GgufFile

LOCAL_BASE = 10000.0  # Gemma 3's sliding layers; most files leave it out
LLAMA3_ORIGINAL_CONTEXT = 8192
YARN_OPTIONS = {"yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow", "attn_factor": "attention_factor"}


def rope_parameters(gguf: GgufFile, arch: str, head_dim: int) -> dict[str, Any]:
    """The parameters of one kind of layer. Raises UnsupportedModel for a scaling that is not known here."""
    meta, prefix = gguf.meta, f"{arch}.rope."
    theta = meta.get(prefix + "freq_base", 10000.0)
    if "rope_freqs.weight" in gguf.tensors:
        return _llama3(gguf.tensors["rope_freqs.weight"].dequantized(), theta, head_dim)
    kind = meta.get(prefix + "scaling.type", "none")
    base: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if kind == "none":
        return base
    if kind not in ("linear", "yarn"):
        raise UnsupportedModel(f"RoPE scaling {kind!r} is not supported (supported: none, linear, yarn, llama3)")
    scaled = base | {"rope_type": kind, "factor": meta[prefix + "scaling.factor"]}
    return scaled if kind == "linear" else scaled | _yarn(meta, prefix + "scaling.")


def gemma3_rope_parameters(gguf: GgufFile, head_dim: int) -> dict[str, Any]:
    """One dict for each kind of layer: scaling belongs to the full layers only."""
    local = gguf.meta.get("gemma3.rope.freq_base_swa", LOCAL_BASE)
    return {
        "full_attention": rope_parameters(gguf, "gemma3", head_dim),
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
    }


def _yarn(meta: dict[str, Any], prefix: str) -> dict[str, Any]:
    options = {ours: meta[prefix + theirs] for theirs, ours in YARN_OPTIONS.items() if prefix + theirs in meta}
    return options | {"original_max_position_embeddings": meta[prefix + "original_context_length"]}


def _llama3(divisors: npt.NDArray[np.float32], theta: float, head_dim: int) -> dict[str, Any]:
    """Llama 3.1 and later: the file holds only the resulting divisor of each frequency.

    All published models share the other three numbers, so these are tried and must reproduce the tensor.
    """
    found = {"rope_type": "llama3", "rope_theta": theta, "factor": round(float(divisors.max()), 4)}
    found |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    found |= {"original_max_position_embeddings": LLAMA3_ORIGINAL_CONTEXT}
    if not np.allclose(divisors, llama3_divisors(found, head_dim), rtol=1e-4):
        raise UnsupportedModel("rope_freqs.weight holds frequencies that are not those of a Llama 3 model")
    return found


def llama3_divisors(rope: dict[str, Any], head_dim: int) -> npt.NDArray[np.float64]:
    """What Llama 3's rule divides each of the head_dim / 2 frequencies by.

    1 for short waves, `factor` for long ones, and between them a blend that is linear in the number of turns over the
    original context.
    """
    frequency = rope["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim)
    turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray(1.0 / ((1.0 - blend) / rope["factor"] + blend), dtype=np.float64)
