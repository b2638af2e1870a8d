"""Ragged paged attention in the Triton language: prompt chunks and decode rows in one launch, with no padding."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import power_of_2, shared_bytes
from kernels.paged_attention.key_tiles import all_or_less, attend_tiles, empty_state, normalised
from kernels.paged_attention.shapes import AttentionShape, ragged_shape

LOG2_E_FLOAT = 1.4426950408889634


def paged_attention(
    q: Tensor,
    pool: Tensor,
    layer: int,
    block_tables: Tensor,
    query_start: Tensor,
    kv_lengths: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    scales: Tensor | None = None,
    shape: AttentionShape | None = None,
) -> Tensor:
    """Attend each query row to its own sequence's keys, causally; see ``reference.paged_attention``.

    Args:
        q: ``[T, Hq, D]``; rows and heads may be strided.
        pool: ``[num_blocks, num_layers, 2, Hkv, block_size, D]`` in q's dtype, or in 8 bits together with scales.
        layer, block_tables, query_start, kv_lengths, scale, window, softcap: as in the reference.
        scales: float32 ``[num_blocks, num_layers, 2, Hkv, block_size]``, factor of each key and value, or None.
        shape: the tile to use; chosen from the batch's mean number of rows per sequence when None.

    Returns:
        ``[T, Hq, D]`` in q's dtype, contiguous; zeros in rows of no sequence and of sequences with no key.
    """
    (num_rows, num_heads, size), num_sequences = q.shape, kv_lengths.shape[0]
    num_kv_heads, block_size = pool.shape[3], pool.shape[4]
    group = num_heads // num_kv_heads
    if shape is None:
        item_bytes, shared = pool.element_size(), shared_bytes(q)
        shape = ragged_shape(num_rows, num_sequences, group, size, block_size, item_bytes, shared)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if num_rows == 0:
        return out
    # No sequence's tile straddles another's rows, so each may add one; the last stands for rows of no sequence.
    tiles = num_rows // shape.queries(group) + num_sequences + 1
    ragged_attention_kernel[(tiles, num_kv_heads)](
        q, out, pool, pool if scales is None else scales, block_tables, query_start, kv_lengths, layer,
        scale if softcap is not None else scale * LOG2_E_FLOAT, softcap or 1.0, num_sequences, num_rows,
        q.stride(0), q.stride(1), out.stride(0), out.stride(1), block_tables.stride(0),
        *pool.stride()[:5], *(scales if scales is not None else pool).stride()[:4],
        GROUP=group, D=size, D_PAD=power_of_2(size, 16), ROWS=shape.rows, TILE=shape.tile, BLOCK_SIZE=block_size,
        WINDOW=window or 0, CAPPED=softcap is not None, SCALED=scales is not None, PRECISION=precision(q.dtype),
        **shape.schedule.options(),
    )  # fmt: skip
    return out


def precision(dtype: torch.dtype) -> str:
    """Of products: float32 operands keep all their bits, where the default would round them to tensor float 32."""
    return "ieee" if dtype == torch.float32 else "tf32"


@triton.jit
def sequence_of_tile(query_start, tile, num_sequences, QUERIES: tl.constexpr):
    """The last sequence whose first tile is at most ``tile``; num_sequences itself for rows of no sequence.

    Sequence ``s`` begins at tile ``query_start[s] // QUERIES + s``: room enough for the tiles of all before it,
    and known without a pass over the batch.
    """
    low, high = 0, num_sequences
    while low < high:
        middle = (low + high + 1) // 2
        if tl.load(query_start + middle) // QUERIES + middle <= tile:
            low = middle
        else:
            high = middle - 1
    return low


@triton.jit
def pool_pointers(pool, scales, layer, kv_head, pool_layer, pool_part, pool_head, scale_layer, scale_part, scale_head):
    """Of one layer and head: keys, values, key scales, value scales."""
    # A layer far into a large block lies beyond 2**31 elements.
    keys = pool + layer.to(tl.int64) * pool_layer + kv_head * pool_head
    key_scales = scales + layer.to(tl.int64) * scale_layer + kv_head * scale_head
    return keys, keys + pool_part, key_scales, key_scales + scale_part


@triton.jit(do_not_specialize=["layer", "num_sequences", "num_rows"])
def ragged_attention_kernel(
    q, out, pool, scales, block_tables, query_start, kv_lengths, layer, scale, softcap, num_sequences, num_rows,
    q_row, q_head, out_row, out_head, table_row,
    pool_block, pool_layer, pool_part, pool_head, pool_slot, scale_block, scale_layer, scale_part, scale_head,
    GROUP: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, WINDOW: tl.constexpr, CAPPED: tl.constexpr, SCALED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of query rows, all heads of one group. Grid: ``(tiles, Hkv)``."""
    QUERIES: tl.constexpr = ROWS // GROUP  # noqa: N806
    # The last tiles of a prompt see the most keys: first come, first served would leave them to the end.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    sequence = sequence_of_tile(query_start, tile, num_sequences, QUERIES)
    first_row = tl.load(query_start + sequence)
    is_real = sequence < num_sequences
    end_row = tl.load(query_start + sequence + 1, mask=is_real, other=num_rows)
    length = tl.load(kv_lengths + sequence, mask=is_real, other=0)
    first_query = (tile - first_row // QUERIES - sequence) * QUERIES
    count = end_row - first_row
    if first_query >= count:
        return
    rows, dims = tl.arange(0, ROWS), tl.arange(0, D_PAD)
    query, head = first_query + rows // GROUP, kv_head * GROUP + rows % GROUP
    used = (rows < QUERIES * GROUP) & (query < count)
    inside = used[:, None] & all_or_less(dims, D, D_PAD)[None, :]
    row = (first_row + query).to(tl.int64)
    query_tile = tl.load(q + (row * q_row + head * q_head)[:, None] + dims[None, :], mask=inside, other=0.0)

    first_position = length - count + first_query
    high = tl.maximum(tl.minimum(first_position + QUERIES, length), 0)
    low = tl.maximum(first_position - WINDOW + 1, 0) if WINDOW > 0 else 0
    # Up to here all rows see all keys; with a window the front is ragged too, and every tile is masked.
    clear = 0 if WINDOW > 0 else tl.maximum(first_position + 1, 0) // TILE * TILE
    positions = tl.where(used, length - count + query, -1)
    table = block_tables + sequence.to(tl.int64) * table_row
    pointers = pool_pointers(
        pool, scales, layer, kv_head, pool_layer, pool_part, pool_head, scale_layer, scale_part, scale_head
    )
    strides = (pool_block, pool_slot, scale_block)
    state = empty_state(ROWS, D_PAD)
    if WINDOW == 0:
        state = attend_tiles(
            state, query_tile, pointers, table, 0, clear, 0, clear, positions, scale, softcap, strides,
            D, D_PAD, BLOCK_SIZE, TILE, WINDOW, CAPPED, SCALED, False, PRECISION,
        )  # fmt: skip
    state = attend_tiles(
        state, query_tile, pointers, table, tl.maximum(clear, low // TILE * TILE), high, low, high, positions,
        scale, softcap, strides, D, D_PAD, BLOCK_SIZE, TILE, WINDOW, CAPPED, SCALED, True, PRECISION,
    )  # fmt: skip
    result = normalised(state).to(out.dtype.element_ty)
    tl.store(out + (row * out_row + head * out_head)[:, None] + dims[None, :], result, mask=inside)
