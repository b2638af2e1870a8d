"""Attention of a sequence's only row (a decode step) over a pool of int16: 16 keys side by side in a vector."""

import numpy as np

from kernels.cpu.emitting import LINE
from kernels.cpu.int16_slots import largest_of, largest_weight_of
from kernels.cpu.integer_softmax import put_constants, softmax_of_row
from kernels.cpu.jit import inline
from kernels.cpu.memory import copy, fill, floats, longs
from kernels.cpu.pair_tiles import COLUMNS, MOST_ROWS, row_scores, row_values
from kernels.cpu.tile import WIDTH
from kernels.paged_attention.cpu_int16 import TABLE, announce_keys, begin, open_tile, power, query_factor, round_query
from kernels.paged_attention.cpu_problem import KEYS, Problem, Task
from kernels.paged_attention.cpu_vectors import scale

_COLUMNS = COLUMNS * WIDTH  # dimensions of a tile


def single_scratch(group: int, size: int) -> int:
    """Bytes of scratch that ``attend_single`` of so many heads needs."""
    return group * (size * 2 + size * 4 + 5 * 4 + KEYS * 6) + 3 * TABLE * 8 + 2 * KEYS * 4 + 16 + 16


@inline
def _store(p: Problem, task: Task, sums: int, group: int) -> None:
    """The rows' results, or a partial one: sums, references and totals, as they lie."""
    if task.partial >= 0:
        words = group * (p.size + 2)
        copy(sums, words, p.partials + task.partial * words * 4)
        return
    totals = floats(sums + group * (p.size + 1) * 4, group)
    for g in range(group):
        out = p.out + (task.row * p.heads + task.head * group + g) * p.size * 4
        copy(sums + g * p.size * 4, p.size, out)
        scale(floats(out, p.size), np.float32(1) / totals[g])


@inline
def attend_single_int16(p: Problem, task: Task, after: Task, scratch: int) -> None:
    """Compute a task of one row; after: the same member's next, or this one."""
    group, size = p.heads // p.kv_heads, p.size
    query_bytes, score_bytes, weight_bytes, sum_bytes = size * 2, KEYS * 4, KEYS * 2, size * 4
    sums = scratch
    state = sums + group * sum_bytes
    factors = state + 4 * group * 4
    scores = factors + group * 4
    weights = scores + group * score_bytes
    queries = weights + group * weight_bytes
    keys = (queries + group * query_bytes + 7) // 8 * 8
    values = keys + TABLE * 8
    ahead = values + TABLE * 8
    steps = ahead + TABLE * 8
    constants = steps + 2 * KEYS * 4
    put_constants(constants, largest_weight_of(size), p.softcap)
    found, most, base = floats(factors, group), largest_of(size), query_factor(p)
    for g in range(group):
        found[g] = round_query(p, task.row, task.head * group + g, most, queries + g * query_bytes) * base
    begin(state, state + group * 4, group)
    fill(sums, group * size, np.float32(0))
    of_keys, of_values = longs(keys, TABLE), longs(values, TABLE)
    for low in range(task.low // KEYS * KEYS, task.high, KEYS):
        high = min(task.high, low + KEYS)
        runs = open_tile(p, task, low, high, keys, values, steps)
        for g in range(0, group, MOST_ROWS):
            some = min(MOST_ROWS, group - g)
            for run in range(runs):
                to = scores + g * score_bytes + run * LINE
                of_g = queries + g * query_bytes
                row_scores(some, of_g, query_bytes, of_keys[run], size // 2, to, score_bytes, of_values[run])
        for g in range(group):
            softmax_of_row(
                scores + g * score_bytes, steps, factors + g * 4, constants, max(0, task.low - low), high - low,
                state + g * 4, group * 4, weights + g * weight_bytes, p.softcap != 0.0,
            )  # fmt: skip
        if low + KEYS < task.high:
            announce_keys(p, task, low + KEYS, runs, ahead)
        else:
            announce_keys(p, after, after.low // KEYS * KEYS, runs, ahead)
        for g in range(0, group, MOST_ROWS):
            some = min(MOST_ROWS, group - g)
            for d in range(0, size, _COLUMNS):
                row_values(
                    some, values, runs, weights + g * weight_bytes, weight_bytes, d * 4, size * 4,
                    sums + g * sum_bytes + d * 4, sum_bytes, state + (2 * group + g) * 4, state + (3 * group + g) * 4,
                    ahead,
                )  # fmt: skip
    _store(p, task, sums, group)


@inline
def combine_int16(p: Problem, task: Task, parts: int, g: int, group: int) -> None:
    """One query head: bring its parts to the largest reference of all and add them in the order of their keys."""
    words = group * (p.size + 2)
    first = p.partials + task.partial * words * 4
    references = floats(first + group * p.size * 4, parts * words)
    totals = floats(first + group * (p.size + 1) * 4, parts * words)
    top = references[g]
    for part in range(1, parts):
        top = max(top, references[part * words + g])
    at = p.out + (task.row * p.heads + task.head * group + g) * p.size * 4
    fill(at, p.size, np.float32(0))
    out, total = floats(at, p.size), np.float32(0)
    for part in range(parts):
        factor = power(references[part * words + g] - top)
        total += factor * totals[part * words + g]
        sums = floats(first + (part * words + g * p.size) * 4, p.size)
        for i in range(p.size):
            out[i] += factor * sums[i]
    scale(out, np.float32(1) / total)
