"""A pool in 8 bits, in plain torch: what is written, and attention over it.

One scale per token, head and part (key, value): the largest magnitude of its elements over the largest number of the
format, so that a token never changes what another is worth, as a scale per block or tensor would.
"""

import torch
from torch import Tensor

from kernels.paged_attention import reference as paged_attention_reference

LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
"""Largest finite number of each format."""


def quantize(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``[..., D]`` -> the same in ``dtype`` and float32 scales ``[...]``; their product is about ``x``.

    int8 is rounded to the nearest whole number, halves up; float8 as the hardware does, to the nearest, ties to even.

    Raises:
        ValueError: dtype is neither int8 nor float8_e4m3fn.
    """
    if dtype not in LARGEST:
        raise ValueError(f"dtype {dtype}: expected torch.int8 or torch.float8_e4m3fn")
    wide = x.float()
    scale = wide.abs().amax(dim=-1) / LARGEST[dtype]
    scaled = wide / torch.where(scale > 0, scale, 1.0)[..., None]
    rounded = torch.floor(scaled + 0.5) if dtype == torch.int8 else scaled.clamp(-LARGEST[dtype], LARGEST[dtype])
    return rounded.to(dtype), scale


def kv_write(k: Tensor, v: Tensor, pool: Tensor, scales: Tensor, layer: int, slot_mapping: Tensor) -> None:
    """Store each row's key and value, quantized, in its slot, in place.

    Args:
        k, v, layer, slot_mapping: see ``kernels.kv_write.reference.kv_write``.
        pool: int8 or float8_e4m3fn ``[num_blocks, num_layers, 2 (key, value), Hkv, block_size, D]``; changed.
        scales: float32 ``[num_blocks, num_layers, 2, Hkv, block_size]``; changed.
    """
    block_size = pool.shape[4]
    blocks, offsets = slot_mapping // block_size, slot_mapping % block_size
    for part, x in enumerate((k, v)):
        numbers, scale = quantize(x, pool.dtype)
        pool[:, layer, part].view(torch.uint8)[blocks, :, offsets] = numbers.view(torch.uint8)
        scales[:, layer, part][blocks, :, offsets] = scale


def paged_attention(
    q: Tensor,
    pool: Tensor,
    scales: Tensor,
    layer: int,
    block_tables: Tensor,
    query_start: Tensor,
    kv_lengths: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> Tensor:
    """``kernels.paged_attention.reference.paged_attention`` over a pool in 8 bits, widened first.

    Args:
        pool, scales: as for ``kv_write``; slots that no row sees may hold anything, NaN scales included.
        q, layer, block_tables, query_start, kv_lengths, scale, window, softcap: as there.

    Returns:
        ``[T, Hq, D]`` in q's dtype.
    """
    wide = pool[:, layer : layer + 1].float() * scales[:, layer : layer + 1, ..., None]
    return paged_attention_reference.paged_attention(
        q, wide, 0, block_tables, query_start, kv_lengths, scale, window, softcap
    )
