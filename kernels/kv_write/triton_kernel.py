"""Writing keys and values into the pool in the Triton language."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Schedule, cdiv, power_of_2

HEADS = 4


def kv_write(k: Tensor, v: Tensor, pool: Tensor, layer: int, slot_mapping: Tensor) -> None:
    """Store each row's key and value in its slot, in place; see ``reference.kv_write``.

    k and v: ``[T, Hkv, D]``; rows and heads may be strided.
    """
    rows, heads, size = k.shape
    if rows == 0:
        return
    kv_write_kernel[(rows, cdiv(heads, HEADS))](
        k, v, pool, slot_mapping, layer, k.stride(0), k.stride(1), v.stride(0), v.stride(1), *pool.stride()[:5],
        TOTAL_HEADS=heads, D=size, D_PAD=power_of_2(size), HEADS=HEADS, BLOCK_SIZE=pool.shape[4],
        **Schedule(4).options(),
    )  # fmt: skip


@triton.jit
def slot_offset(slot, layer, block_stride, layer_stride, slot_stride, BLOCK_SIZE: tl.constexpr):
    """Pool offset of a slot in a layer, int64: a pool of 2**31 elements is not large."""
    block = slot.to(tl.int64) // BLOCK_SIZE
    return block * block_stride + layer.to(tl.int64) * layer_stride + slot % BLOCK_SIZE * slot_stride


@triton.jit(do_not_specialize=["layer"])
def kv_write_kernel(
    k, v, pool, slot_mapping, layer, k_row, k_head, v_row, v_head,
    pool_block, pool_layer, pool_part, pool_head, pool_slot,
    TOTAL_HEADS: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """Some heads of one row. Grid: ``(T, head blocks)``."""
    row = tl.program_id(0).to(tl.int64)
    heads, dims = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, D_PAD)
    inside = (heads < TOTAL_HEADS)[:, None] & (dims < D)[None, :]
    slot = tl.load(slot_mapping + row)
    target = pool + slot_offset(slot, layer, pool_block, pool_layer, pool_slot, BLOCK_SIZE)
    target += heads[:, None] * pool_head + dims[None, :]
    key = tl.load(k + row * k_row + heads[:, None] * k_head + dims[None, :], mask=inside)
    value = tl.load(v + row * v_row + heads[:, None] * v_head + dims[None, :], mask=inside)
    tl.store(target, key.to(pool.dtype.element_ty), mask=inside)
    tl.store(target + pool_part, value.to(pool.dtype.element_ty), mask=inside)
