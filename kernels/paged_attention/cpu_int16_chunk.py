"""Attention of several rows of a sequence over a pool of int16: 16 rows side by side in a vector."""

from typing import Any

import numpy as np

from kernels.cpu.emitting import LINE
from kernels.cpu.int16_slots import largest_of, largest_weight_of
from kernels.cpu.integer_softmax import put_constants, softmax_columns
from kernels.cpu.jit import inline
from kernels.cpu.memory import fill, floats, ints, longs
from kernels.cpu.pair_tiles import ACROSS, BESIDE, chunk_scores, chunk_values
from kernels.cpu.tile import WIDTH
from kernels.int16_kv.reference import RUN
from kernels.paged_attention.cpu_int16 import TABLE, announce_keys, begin, open_tile, power, query_factor, round_query
from kernels.paged_attention.cpu_problem import KEYS, PART, Problem, Task

_STATE = 4  # rows of what softmax_columns keeps: reference, total, worth, factor
_VECTORS = _STATE + 5  # of rows: the state, query factors, first and end keys, reference and total of all parts


def chunk_scratch(rows: int, size: int) -> int:
    """Bytes of scratch that ``attend_chunk`` of so many rows needs."""
    width = (rows + WIDTH - 1) // WIDTH * WIDTH
    per_row = size * 2 + 2 * size * 4 + _VECTORS * 4
    return width * per_row + BESIDE * WIDTH * KEYS * 6 + 3 * TABLE * 8 + 2 * KEYS * 4 + 16 + size * 2


@inline
def _fetch_queries(p: Problem, task: Task, group: int, queries: int, factors: int, numbers: int) -> None:
    """Row ``i * group + g`` is head ``g`` of the group of the task's query ``i``; ``[rows / 16, size / 2, 16, 2]``."""
    found, base, most = floats(factors, task.rows * group), query_factor(p), largest_of(p.size)
    pairs = ints(numbers, p.size // 2)
    for i in range(task.rows):
        for g in range(group):
            row = i * group + g
            found[row] = round_query(p, task.row + i, task.head * group + g, most, numbers) * base
            target = ints(queries + (row // WIDTH * p.size // 2 * WIDTH + row % WIDTH) * 4, p.size // 2 * WIDTH)
            for pair in range(p.size // 2):
                target[pair * WIDTH] = pairs[pair]


@inline
def _bound(p: Problem, task: Task, low: int, high: int, group: int, first: int, end: int) -> None:
    """Of each row the first key of the tile that it sees, and that behind the last."""
    firsts, ends = ints(first, task.rows * group), ints(end, task.rows * group)
    for i in range(task.rows):
        # The task ends with the last key that its last row sees, so each row before sees one key less.
        position = task.high - task.rows + i
        start = 0 if p.window == 0 else max(0, position - p.window + 1 - low)
        for g in range(group):
            firsts[i * group + g] = np.int32(start)
            ends[i * group + g] = np.int32(min(high, position + 1) - low)


@inline
def _all_see_all(p: Problem, task: Task, low: int) -> Any:
    """Whether every row sees every key of a tile."""
    in_window = p.window == 0 or task.high - p.window <= low
    return low + KEYS <= task.high - task.rows + 1 and in_window


@inline
def _close_part(width: int, size: int, state: int, whole: int, sums: int, whole_sums: int) -> None:
    """Add a part's sums to those of all parts, and begin the next."""
    references, totals = floats(state, width), floats(state + width * 4, width)
    all_references, all_totals = floats(whole, width), floats(whole + width * 4, width)
    of_part, of_all = floats(state + 2 * width * 4, width), floats(state + 3 * width * 4, width)
    for row in range(width):
        reference = max(references[row], all_references[row])
        of_part[row] = power(references[row] - reference)
        of_all[row] = power(all_references[row] - reference)
        all_references[row] = reference
        all_totals[row] = all_totals[row] * of_all[row] + totals[row] * of_part[row]
    for d in range(size):
        part, together = floats(sums + d * width * 4, width), floats(whole_sums + d * width * 4, width)
        for row in range(width):
            together[row] = together[row] * of_all[row] + part[row] * of_part[row]
    begin(state, state + width * 4, width)
    fill(sums, width * size, np.float32(0))


@inline
def _store(p: Problem, task: Task, group: int, width: int, total: int, sums: int) -> None:
    totals = floats(total, width)
    for i in range(task.rows):
        for g in range(group):
            row = i * group + g
            inverse, column = np.float32(1) / totals[row], floats(sums + row * 4, width * p.size)
            out = floats(p.out + ((task.row + i) * p.heads + task.head * group + g) * p.size * 4, p.size)
            for d in range(p.size):
                out[d] = column[d * width] * inverse


@inline
def _score(
    beside: int, runs: int, keys: int, values: int, ahead: int, queries: int, query_bytes: int, size: int, scores: int
) -> None:  # fmt: skip
    """Scores of a tile's runs by ``beside`` panels of rows, and meanwhile what is read next is brought near."""
    of_keys, of_values, of_ahead = longs(keys, TABLE), longs(values, TABLE), longs(ahead, TABLE)
    for run in range(runs):
        for key in range(0, RUN, ACROSS):
            at, to = of_keys[run] + key * 4, scores + (run * RUN + key) * BESIDE * LINE
            # Half of a run's keys ask for its values, the other half for the run that the next tile has there.
            near = of_values[run] if key == 0 else of_ahead[run]
            chunk_scores(beside, at, queries, query_bytes, size // 2, to, BESIDE * LINE, near)


@inline
def attend_chunk_int16(p: Problem, task: Task, scratch: int) -> None:
    """Compute a task of several rows."""
    group = p.heads // p.kv_heads
    rows, size = task.rows * group, p.size
    panels = (rows + WIDTH - 1) // WIDTH
    width = panels * WIDTH
    row_bytes, query_bytes, weight_bytes = width * 4, size * 2 * WIDTH, KEYS * 2 * WIDTH
    sums = scratch
    whole_sums = sums + size * row_bytes
    queries = whole_sums + size * row_bytes
    state = queries + panels * query_bytes
    whole, factors = state + _STATE * row_bytes, state + (_STATE + 2) * row_bytes
    first, end = factors + row_bytes, factors + 2 * row_bytes
    scores = end + row_bytes
    weights = scores + BESIDE * WIDTH * KEYS * 4
    keys = weights + BESIDE * weight_bytes
    values = keys + TABLE * 8
    ahead = values + TABLE * 8
    steps = ahead + TABLE * 8
    constants = steps + 2 * KEYS * 4
    numbers = constants + 16
    put_constants(constants, largest_weight_of(size), p.softcap)
    fill(factors, 3 * width, np.float32(0))  # zero bits: no row behind the last sees anything
    _fetch_queries(p, task, group, queries, factors, numbers)
    begin(state, state + row_bytes, width)
    begin(whole, whole + row_bytes, width)
    fill(sums, 2 * size * width, np.float32(0))
    for low in range(task.low // KEYS * KEYS, task.high, KEYS):
        high, masked = min(task.high, low + KEYS), not _all_see_all(p, task, low)
        runs = open_tile(p, task, low, high, keys, values, steps)
        announce_keys(p, task, low + KEYS, runs, ahead)
        if masked:
            _bound(p, task, low, high, group, first, end)
        for panel in range(0, panels, BESIDE):
            beside, column = min(BESIDE, panels - panel), panel * LINE
            _score(beside, runs, keys, values, ahead, queries + panel * query_bytes, query_bytes, size, scores)
            for n in range(beside):
                at = column + n * LINE
                softmax_columns(
                    scores + n * LINE, BESIDE * LINE, runs * RUN, steps, factors + at, constants, first + at, end + at,
                    state + at, row_bytes, weights + n * weight_bytes, masked, p.softcap != 0.0,
                )  # fmt: skip
            for d in range(0, size, ACROSS):
                to = sums + d * row_bytes + column
                chunk_values(
                    beside, values, runs, weights, weight_bytes, d * 4, size * 4, to, row_bytes,
                    state + 2 * row_bytes + column, state + 3 * row_bytes + column,
                )  # fmt: skip
        if (low + KEYS) % PART == 0:
            _close_part(width, size, state, whole, sums, whole_sums)
    _close_part(width, size, state, whole, sums, whole_sums)
    _store(p, task, group, width, whole + row_bytes, whole_sums)
