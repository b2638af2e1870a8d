"""Split-KV decode attention in the Triton language: one query row per sequence, long sequences cut into parts.

As in Flash-Decoding (Dao et al., 2023), parts of a sequence are attended by different programs and their results
merged by a second kernel. How the work is cut is decided on the device, from the lengths:

    total = keys of all sequences        chunk = total / target, rounded up to whole units
    sequence s has ceil(keys[s] / chunk) items      items of all sequences <= target + num_sequences

so the grid and the buffers depend on the number of sequences and the device alone: a captured graph serves all
lengths, and one long sequence among short ones is spread over the whole device.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import cdiv, multiprocessors, power_of_2, shared_bytes
from kernels.paged_attention.key_tiles import all_or_less, attend_tiles, empty_state, normalised
from kernels.paged_attention.shapes import AttentionShape, decode_shape
from kernels.paged_attention.triton_kernel import LOG2_E_FLOAT, pool_pointers, precision

PROGRAMS_PER_MULTIPROCESSOR = 8
UNIT_KEYS = 128
"""A chunk is a whole number of these: smaller parts would cost more to merge than they save."""

MERGE_PARTS = 16


def paged_attention(
    q: Tensor,
    pool: Tensor,
    layer: int,
    block_tables: Tensor,
    query_start: Tensor,  # noqa: ARG001
    kv_lengths: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    scales: Tensor | None = None,
    shape: AttentionShape | None = None,
) -> Tensor:
    """``triton_kernel.paged_attention`` for batches where row ``s`` is the one row of sequence ``s``.

    ``query_start`` is not read: the caller promises that it counts ``0, 1, 2, ...``. Results depend on how sequences
    are cut, so in the last bits on the rest of the batch; the ragged kernel's only through the tile shape it is given.

    Raises:
        ValueError: not one row per sequence.
    """
    (num_rows, num_heads, size), num_kv_heads, block_size = q.shape, pool.shape[3], pool.shape[4]
    if num_rows != kv_lengths.shape[0]:
        raise ValueError(f"{num_rows} rows for {kv_lengths.shape[0]} sequences: decode attention takes one row each")
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if num_rows == 0:
        return out
    group = num_heads // num_kv_heads
    shape = shape or decode_shape(group, size, block_size, pool.element_size(), shared_bytes(q))
    target = cdiv(multiprocessors(q) * PROGRAMS_PER_MULTIPROCESSOR, num_kv_heads)
    items = target + num_rows
    parts = torch.empty((items, num_heads, size), dtype=torch.float32, device=q.device)
    log_sums = torch.empty((items, num_heads), dtype=torch.float32, device=q.device)
    cut = {"WINDOW": window or 0, "UNIT": max(UNIT_KEYS, shape.tile), "SEQUENCES": power_of_2(num_rows)}
    sizes = {"D": size, "D_PAD": power_of_2(size, 16)}
    split_attention_kernel[(items, num_kv_heads)](
        q, out, parts, log_sums, pool, pool if scales is None else scales, block_tables, kv_lengths, layer,
        scale if softcap is not None else scale * LOG2_E_FLOAT, softcap or 1.0, num_rows, target,
        q.stride(0), q.stride(1), num_heads, block_tables.stride(0),
        *pool.stride()[:5], *(scales if scales is not None else pool).stride()[:4],
        GROUP=group, ROWS=shape.rows, TILE=shape.tile, BLOCK_SIZE=block_size, CAPPED=softcap is not None,
        SCALED=scales is not None, PRECISION=precision(q.dtype), **cut, **sizes, **shape.schedule.options(),
    )  # fmt: skip
    merge_parts_kernel[(num_rows, num_heads)](
        out, parts, log_sums, kv_lengths, num_rows, target, num_heads,
        PARTS=MERGE_PARTS, num_warps=2, enable_fp_fusion=True, **cut, **sizes,
    )  # fmt: skip
    return out


@triton.jit
def cut_work(
    kv_lengths, num_sequences, target, WINDOW: tl.constexpr, UNIT: tl.constexpr, SEQUENCES: tl.constexpr
):  # fmt: skip
    """How the batch is cut: chunk length in keys, items of each sequence, items up to and including it."""
    index = tl.arange(0, SEQUENCES)
    lengths = tl.load(kv_lengths + index, mask=index < num_sequences, other=0)
    spans = lengths - first_key(lengths, WINDOW, UNIT)
    chunk = tl.cdiv(tl.cdiv(tl.sum(spans, axis=0), target), UNIT) * UNIT
    counts = tl.cdiv(spans, tl.maximum(chunk, UNIT))
    return tl.maximum(chunk, UNIT), counts, tl.cumsum(counts, axis=0)


@triton.jit
def first_key(length, WINDOW: tl.constexpr, UNIT: tl.constexpr):
    """Where a sequence's first item begins: at the window, rounded down to whole units."""
    if WINDOW > 0:
        return tl.maximum(length - WINDOW, 0) // UNIT * UNIT
    else:
        return length * 0


@triton.jit(do_not_specialize=["layer", "num_sequences", "target"])
def split_attention_kernel(
    q, out, parts, log_sums, pool, scales, block_tables, kv_lengths, layer, scale, softcap, num_sequences, target,
    q_row, q_head, num_heads, table_row,
    pool_block, pool_layer, pool_part, pool_head, pool_slot, scale_block, scale_layer, scale_part, scale_head,
    GROUP: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, WINDOW: tl.constexpr, CAPPED: tl.constexpr, SCALED: tl.constexpr,
    PRECISION: tl.constexpr, UNIT: tl.constexpr, SEQUENCES: tl.constexpr,
):  # fmt: skip
    """One item: all heads of a group against one part of one sequence's keys. Grid: ``(items, Hkv)``."""
    item, kv_head = tl.program_id(0), tl.program_id(1)
    chunk, counts, ends = cut_work(kv_lengths, num_sequences, target, WINDOW, UNIT, SEQUENCES)
    if item >= tl.sum(counts, axis=0):
        return
    sequence = tl.sum((ends <= item).to(tl.int32), axis=0)
    part = item - tl.max(tl.where(ends <= item, ends, 0), axis=0)
    count = tl.sum(tl.where(tl.arange(0, SEQUENCES) == sequence, counts, 0), axis=0)
    length = tl.load(kv_lengths + sequence)
    begin = first_key(length, WINDOW, UNIT) + part * chunk
    end = tl.minimum(begin + chunk, length)

    rows, dims = tl.arange(0, ROWS), tl.arange(0, D_PAD)
    head = kv_head * GROUP + rows
    inside = (rows < GROUP)[:, None] & all_or_less(dims, D, D_PAD)[None, :]
    query = q + sequence.to(tl.int64) * q_row
    query_tile = tl.load(query + (head * q_head)[:, None] + dims[None, :], mask=inside, other=0.0)
    positions = tl.where(rows < GROUP, length - 1, -1)
    low = tl.maximum(length - WINDOW, 0) if WINDOW > 0 else 0
    clear = begin if WINDOW > 0 else end // TILE * TILE
    table = block_tables + sequence.to(tl.int64) * table_row
    pointers = pool_pointers(
        pool, scales, layer, kv_head, pool_layer, pool_part, pool_head, scale_layer, scale_part, scale_head
    )
    strides = (pool_block, pool_slot, scale_block)
    state = empty_state(ROWS, D_PAD)
    if WINDOW == 0:
        state = attend_tiles(
            state, query_tile, pointers, table, begin, clear, begin, clear, positions, scale, softcap, strides,
            D, D_PAD, BLOCK_SIZE, TILE, WINDOW, CAPPED, SCALED, False, PRECISION,
        )  # fmt: skip
    state = attend_tiles(
        state, query_tile, pointers, table, clear, end, low, end, positions, scale, softcap, strides,
        D, D_PAD, BLOCK_SIZE, TILE, WINDOW, CAPPED, SCALED, True, PRECISION,
    )  # fmt: skip
    result = normalised(state)
    if count == 1:  # nothing to merge
        whole = out + (sequence.to(tl.int64) * num_heads + head)[:, None] * D + dims[None, :]
        tl.store(whole, result.to(out.dtype.element_ty), mask=inside)
    else:
        place = item.to(tl.int64) * num_heads + head
        tl.store(parts + place[:, None] * D + dims[None, :], result, mask=inside)
        # A part that lies before the window saw nothing: its weight becomes 0.
        tl.store(log_sums + place, state[0] + tl.log2(state[1]), mask=rows < GROUP)


@triton.jit(do_not_specialize=["num_sequences", "target"])
def merge_parts_kernel(
    out, parts, log_sums, kv_lengths, num_sequences, target, num_heads,
    PARTS: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, WINDOW: tl.constexpr, UNIT: tl.constexpr,
    SEQUENCES: tl.constexpr,
):  # fmt: skip
    """Merge the parts of one sequence and head, each weighted by its sum of exponentials. Grid: ``(S, Hq)``."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    _, counts, ends = cut_work(kv_lengths, num_sequences, target, WINDOW, UNIT, SEQUENCES)
    mine = tl.arange(0, SEQUENCES) == sequence
    count = tl.sum(tl.where(mine, counts, 0), axis=0)
    first = tl.sum(tl.where(mine, ends, 0), axis=0) - count
    dims, lanes = tl.arange(0, D_PAD), tl.arange(0, PARTS)
    inside = all_or_less(dims, D, D_PAD)
    if count == 1:
        return
    largest, total, weighted = -float("inf"), 0.0, tl.zeros([D_PAD], tl.float32)
    for start in range(0, count, PARTS):
        used = start + lanes < count
        place = (first + start + lanes).to(tl.int64) * num_heads + head
        log_sum = tl.load(log_sums + place, mask=used, other=-float("inf"))
        part = tl.load(
            parts + place[:, None] * D + dims[None, :], mask=used[:, None] & inside[None, :], other=0.0
        )  # fmt: skip
        highest = tl.maximum(largest, tl.max(log_sum, axis=0))
        base = tl.where(highest == -float("inf"), 0.0, highest)
        weights, shrink = tl.exp2(log_sum - base), tl.exp2(largest - base)
        total = total * shrink + tl.sum(weights, axis=0)
        weighted = weighted * shrink + tl.sum(weights[:, None] * part, axis=0)
        largest = highest
    # No parts: a row of padding, or of a sequence with no key.
    result = weighted / tl.where(total > 0.0, total, 1.0)
    place = sequence.to(tl.int64) * num_heads + head
    tl.store(out + place * D + dims, result.to(out.dtype.element_ty), mask=inside)
