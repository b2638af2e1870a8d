"""A pool in 8 bits on the Triton kernels.

The scale of a key is a factor of its column of scores, that of a value a factor of its column of weights: so numbers
are only widened, never multiplied one by one, and sums are those of the unquantized kernel, in float32.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.kv_write.triton_kernel import HEADS, slot_offset
from kernels.launch import Schedule, cdiv, power_of_2
from kernels.paged_attention import triton_decode, triton_kernel
from kernels.quantized_kv.reference import LARGEST


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
    """Attention of a mixed batch over a pool in 8 bits; see ``reference.paged_attention``."""
    return triton_kernel.paged_attention(
        q, pool, layer, block_tables, query_start, kv_lengths, scale, window, softcap, scales
    )


def decode_attention(
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
    """The same where every sequence has exactly one row; see ``kernels.paged_attention.triton_decode``."""
    return triton_decode.paged_attention(
        q, pool, layer, block_tables, query_start, kv_lengths, scale, window, softcap, scales
    )


def kv_write(k: Tensor, v: Tensor, pool: Tensor, scales: Tensor, layer: int, slot_mapping: Tensor) -> None:
    """Store each row's key and value, quantized, in place; see ``reference.kv_write``."""
    rows, heads, size = k.shape
    if rows == 0:
        return
    quantized_write_kernel[(rows, cdiv(heads, HEADS), 2)](
        k, v, pool, scales, slot_mapping, layer, k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        *pool.stride()[:5], *scales.stride()[:4], TOTAL_HEADS=heads, D=size, D_PAD=power_of_2(size), HEADS=HEADS,
        BLOCK_SIZE=pool.shape[4], LARGEST=LARGEST[pool.dtype], **Schedule(4).options(),
    )  # fmt: skip


@triton.jit
def quantized(x, scale, dtype: tl.constexpr):
    """Rows ``x [M, N]`` over their scales ``[M]``, in ``dtype``."""
    scaled = x / tl.where(scale > 0.0, scale, 1.0)[:, None]
    if dtype == tl.int8:
        scaled = tl.floor(scaled + 0.5)
    return scaled.to(dtype)


@triton.jit(do_not_specialize=["layer"])
def quantized_write_kernel(
    k, v, pool, scales, slot_mapping, layer, k_row, k_head, v_row, v_head,
    pool_block, pool_layer, pool_part, pool_head, pool_slot, scale_block, scale_layer, scale_part, scale_head,
    TOTAL_HEADS: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    LARGEST: tl.constexpr,
):  # fmt: skip
    """Some heads of one row's key or value. Grid: ``(T, head blocks, 2)``."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(2)
    heads, dims = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, D_PAD)
    inside = (heads < TOTAL_HEADS)[:, None] & (dims < D)[None, :]
    slot = tl.load(slot_mapping + row)
    if part == 0:
        x = tl.load(k + row * k_row + heads[:, None] * k_head + dims[None, :], mask=inside, other=0.0)
    else:
        x = tl.load(v + row * v_row + heads[:, None] * v_head + dims[None, :], mask=inside, other=0.0)
    wide = x.to(tl.float32)
    scale = tl.max(tl.abs(wide), axis=1) / LARGEST
    target = pool + slot_offset(slot, layer, pool_block, pool_layer, pool_slot, BLOCK_SIZE) + part * pool_part
    numbers = quantized(wide, scale, pool.dtype.element_ty)
    tl.store(target + heads[:, None] * pool_head + dims[None, :], numbers, mask=inside)
    scale_target = scales + slot_offset(slot, layer, scale_block, scale_layer, 1, BLOCK_SIZE) + part * scale_part
    tl.store(scale_target + heads * scale_head, scale, mask=heads < TOTAL_HEADS)
