"""Query and key norm, rotation and pool write in one Triton kernel: each number is read once and written once."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.kv_write.triton_kernel import slot_offset
from kernels.launch import Schedule, cdiv, power_of_2
from kernels.quantized_kv.reference import LARGEST
from kernels.quantized_kv.triton_kernel import quantized
from kernels.rope.triton_kernel import rotate

HEADS = 8


def rope_and_write(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    pool: Tensor,
    layer: int,
    slot_mapping: Tensor,
    query_norm: Tensor | None,
    key_norm: Tensor | None,
    eps: float,
    offset: float,
    scales: Tensor | None = None,
) -> Tensor:
    """Normalise, rotate and store; see ``reference.rope_and_write``. qkv: its rows may be strided.

    Raises:
        ValueError: a norm of queries without one of keys, or the other way round.
    """
    if (query_norm is None) != (key_norm is None):
        raise ValueError("query_norm and key_norm: expected both or neither")
    (rows, width), num_kv_heads, size = qkv.shape, pool.shape[3], pool.shape[5]
    total_heads = width // size
    q = torch.empty((rows, total_heads - 2 * num_kv_heads, size), dtype=qkv.dtype, device=qkv.device)
    if rows:
        rope_and_write_kernel[(rows, cdiv(total_heads, HEADS))](
            qkv, q, cos, sin, qkv if query_norm is None else query_norm, qkv if key_norm is None else key_norm,
            pool, pool if scales is None else scales, slot_mapping, layer, eps, offset, qkv.stride(0),
            *pool.stride()[:5], *(pool if scales is None else scales).stride()[:4],
            Q_HEADS=q.shape[1], KV_HEADS=num_kv_heads, HALF=size // 2, HALF_PAD=power_of_2(size // 2), HEADS=HEADS,
            BLOCK_SIZE=pool.shape[4], NORMED=query_norm is not None, SCALED=scales is not None,
            LARGEST=LARGEST.get(pool.dtype, 0.0), **Schedule(4).options(),
        )  # fmt: skip
    return q


@triton.jit
def normed(left, right, query_norm, key_norm, is_query, dims, eps, offset, HALF: tl.constexpr):
    """RMSNorm of heads given as halves ``[H, D/2]``, each with its kind's weights."""
    square = tl.sum(left * left, axis=1) + tl.sum(right * right, axis=1)
    inverse = tl.rsqrt(square / (2 * HALF) + eps)[:, None]
    inside = dims < HALF
    queries_left = tl.load(query_norm + dims, mask=inside, other=0.0).to(tl.float32)
    queries_right = tl.load(query_norm + HALF + dims, mask=inside, other=0.0).to(tl.float32)
    keys_left = tl.load(key_norm + dims, mask=inside, other=0.0).to(tl.float32)
    keys_right = tl.load(key_norm + HALF + dims, mask=inside, other=0.0).to(tl.float32)
    of_query = is_query[:, None]
    left *= inverse * (offset + tl.where(of_query, queries_left[None, :], keys_left[None, :]))
    right *= inverse * (offset + tl.where(of_query, queries_right[None, :], keys_right[None, :]))
    return left, right


@triton.jit(do_not_specialize=["layer"])
def rope_and_write_kernel(
    qkv, q, cos, sin, query_norm, key_norm, pool, scales, slot_mapping, layer, eps, offset, qkv_row,
    pool_block, pool_layer, pool_part, pool_head, pool_slot, scale_block, scale_layer, scale_part, scale_head,
    Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, HALF_PAD: tl.constexpr, HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, NORMED: tl.constexpr, SCALED: tl.constexpr, LARGEST: tl.constexpr,
):  # fmt: skip
    """Some heads, of whatever kind, of one row. Grid: ``(T, head blocks)``."""
    row = tl.program_id(0).to(tl.int64)
    heads, dims = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, HALF_PAD)
    is_query, is_value = heads < Q_HEADS, heads >= Q_HEADS + KV_HEADS
    in_half = (dims < HALF)[None, :]
    used = (heads < Q_HEADS + 2 * KV_HEADS)[:, None] & in_half
    source = qkv + row * qkv_row + heads[:, None] * (2 * HALF) + dims[None, :]
    raw_left, raw_right = tl.load(source, mask=used, other=0.0), tl.load(source + HALF, mask=used, other=0.0)
    left, right = raw_left.to(tl.float32), raw_right.to(tl.float32)
    if NORMED:
        left, right = normed(left, right, query_norm, key_norm, is_query, dims, eps, offset, HALF)
        # Rounded as the separate operation would, so that fusing changes no bit.
        left, right = left.to(raw_left.dtype).to(tl.float32), right.to(raw_left.dtype).to(tl.float32)
    c = tl.load(cos + row * HALF + dims, mask=dims < HALF, other=0.0)[None, :]
    s = tl.load(sin + row * HALF + dims, mask=dims < HALF, other=0.0)[None, :]
    left, right = rotate(left, right, c, s)
    left = tl.where(is_value[:, None], raw_left, left.to(raw_left.dtype))
    right = tl.where(is_value[:, None], raw_right, right.to(raw_left.dtype))
    query_place = q + (row * Q_HEADS + heads[:, None]) * (2 * HALF) + dims[None, :]
    tl.store(query_place, left, mask=is_query[:, None] & in_half)
    tl.store(query_place + HALF, right, mask=is_query[:, None] & in_half)

    stored = used & ~is_query[:, None]
    kv_head, part = (heads - Q_HEADS) % KV_HEADS, is_value.to(tl.int32)
    slot = tl.load(slot_mapping + row)
    target = pool + slot_offset(slot, layer, pool_block, pool_layer, pool_slot, BLOCK_SIZE)
    target += (kv_head * pool_head + part * pool_part)[:, None] + dims[None, :]
    if SCALED:
        left, right = left.to(tl.float32), right.to(tl.float32)
        largest = tl.maximum(tl.max(tl.abs(left), axis=1), tl.max(tl.abs(right), axis=1))
        scale = largest / LARGEST
        scale_target = scales + slot_offset(slot, layer, scale_block, scale_layer, 1, BLOCK_SIZE)
        in_pool = (heads >= Q_HEADS) & (heads < Q_HEADS + 2 * KV_HEADS)
        tl.store(scale_target + kv_head * scale_head + part * scale_part, scale, mask=in_pool)
        left, right = quantized(left, scale, pool.dtype.element_ty), quantized(right, scale, pool.dtype.element_ty)
    tl.store(target, left.to(pool.dtype.element_ty), mask=stored)
    tl.store(target + HALF, right.to(pool.dtype.element_ty), mask=stored)
