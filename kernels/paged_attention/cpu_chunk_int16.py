"""Attention of a prompt chunk on the CPU, its two matrix products in whole numbers.

As ``cpu_chunk``, in half the time of the products: queries and weights of the softmax are rounded to 12 bits of their
row's largest, keys and values to 13 bits of their own largest. A row's result depends on that row and the keys it
sees, on nothing else: so does the rounding.
"""

import numpy as np

from kernels.cpu.integer_tile import integer_columns
from kernels.cpu.jit import inline
from kernels.cpu.memory import fill, floats, ints
from kernels.cpu.rounding import round_run
from kernels.cpu.softmax_row import LARGEST as OF_WEIGHTS
from kernels.cpu.softmax_row import softmax_row
from kernels.cpu.tile import MAX_ROWS, WIDTH
from kernels.paged_attention.cpu_chunk import fetch_queries, seen_of, store_rows
from kernels.paged_attention.cpu_problem import KEYS, Problem, Task, key_address, padded, run_length
from kernels.paged_attention.cpu_softmax import LOWEST, cap, scale

_OF_QUERIES, _OF_KEYS = OF_WEIGHTS, 2**13 - 1
_MOST_PAIRS = 32  # whose products int32 adds up: 64 * 4095 * 8191 is just below 2**31


@inline
def _fetch_keys(p: Problem, task: Task, low: int, high: int, turned: int, of_keys: int, line: int) -> None:
    """Keys -> int16 panels ``[KEYS / 16, pairs, 16, 2]`` and their scales; what the task does not see is 0."""
    pairs = (p.size + 1) // 2
    if high - low < KEYS or low < task.low:
        fill(turned, KEYS * pairs, np.float32(0))
        fill(of_keys, KEYS, np.float32(0))
    scales, rounded = floats(of_keys, KEYS), ints(line, pairs)
    position = max(low, task.low)
    while position < high:
        keys, count = key_address(p, task, position), run_length(p, position, high)
        for j in range(count):
            at = position - low + j
            scales[at] = round_run(keys + j * p.size * 4, p.size, _OF_KEYS, line)
            column = ints(turned + (at // WIDTH * pairs * WIDTH + at % WIDTH) * 4, pairs * WIDTH)
            for pair in range(pairs):
                column[pair * WIDTH] = rounded[pair]
        position += count


@inline
def _fetch_values(p: Problem, task: Task, low: int, high: int, paired: int, of_values: int, lines: int) -> None:
    """Values -> int16 panels ``[padded / 16, KEYS / 2, 16, 2]`` and their scales; what the task does not see is 0."""
    stride = padded(p.size)
    fill(of_values, KEYS, np.float32(0))
    fill(lines, KEYS * stride // 2, np.float32(0))
    scales = floats(of_values, KEYS)
    position = max(low, task.low)
    while position < high:
        keys, count = key_address(p, task, position), run_length(p, position, high)
        for j in range(count):
            at, value = position - low + j, keys + (p.value_offset + j * p.size) * 4
            scales[at] = round_run(value, p.size, _OF_KEYS, lines + at * stride * 2)
        position += count
    for pair in range(KEYS // 2):
        _interleave(
            lines + pair * stride * 4, lines + pair * stride * 4 + stride * 2, stride, paired + pair * WIDTH * 4
        )


@inline
def _interleave(first: int, second: int, count: int, to: int) -> None:
    """Two int16 ``[count]`` -> pairs, 16 to each panel of ``KEYS / 2`` pairs."""
    low, high = ints(first, count // 2), ints(second, count // 2)
    for panel in range(count // WIDTH):
        pairs = ints(to + panel * KEYS // 2 * WIDTH * 4, WIDTH)
        for i in range(WIDTH // 2):
            a, b = low[panel * WIDTH // 2 + i], high[panel * WIDTH // 2 + i]
            pairs[2 * i] = (a & 0xFFFF) | (b << 16)
            pairs[2 * i + 1] = ((a >> 16) & 0xFFFF) | (b & -0x10000)


@inline
def _weigh(
    p: Problem, task: Task, low: int, high: int, scores: int, of_values: int, state: int, sums: int, weights: int,
    of_weights: int, group: int,
) -> None:  # fmt: skip
    """Each row's scores -> weights, times what its keys' values are worth, int16 ``[rows, KEYS]`` and a scale."""
    rows, stride = task.rows * group, padded(p.size)
    for row in range(rows):
        first, end = seen_of(p, task, low, high, row // group)
        own, to, of_row = scores + row * KEYS * 4, weights + row * KEYS * 2, of_weights + row * 4
        if first >= end:
            fill(to, KEYS // 2, np.float32(0))
            fill(of_row, 1, np.float32(0))
            continue
        if p.softcap != 0.0:
            cap(floats(own + first * 4, end - first), np.float32(p.softcap))
        factor = softmax_row(own, of_values, first, end, state + row * 4, state + (rows + row) * 4, to, of_row)
        if factor != np.float32(1):
            scale(floats(sums + row * stride * 4, stride), factor)


@inline
def _product(
    rows: int, panels: int, x: int, pairs: int, w: int, out: int, begun: int, scales: int, of_rows: int
) -> None:
    """All rows by all panels; rows of the result lie ``16 * panels`` elements apart."""
    for row in range(0, rows, MAX_ROWS):
        to = out + row * panels * WIDTH * 4
        integer_columns(
            True, min(MAX_ROWS, rows - row), panels, x + row * pairs * 4, pairs, w, pairs, _MOST_PAIRS, to,
            panels * WIDTH, begun, scales, of_rows + row * 4,
        )  # fmt: skip


@inline
def attend_chunk_int16(p: Problem, task: Task, scratch: int) -> None:
    """Compute a task of several rows."""
    group = p.heads // p.kv_heads
    rows, stride, pairs = task.rows * group, padded(p.size), (p.size + 1) // 2
    scores = scratch + rows * p.size * 4  # queries before they are rounded lie before it
    sums = scores + rows * KEYS * 4
    state = sums + rows * stride * 4
    queries = state + rows * 2 * 4
    of_queries = queries + rows * pairs * 4
    weights = of_queries + rows * 4
    of_weights = weights + rows * KEYS * 2
    turned = of_weights + rows * 4
    of_keys = turned + KEYS * pairs * 4
    values = of_keys + KEYS * 4
    of_values = values + KEYS * stride * 2
    lines = of_values + KEYS * 4
    fill(sums, rows * stride, np.float32(0))
    fill(state, rows, LOWEST)
    fill(state + rows * 4, rows, np.float32(0))
    fetch_queries(p, task, scratch, group)
    factors = floats(of_queries, rows)
    for row in range(rows):
        factors[row] = round_run(scratch + row * p.size * 4, p.size, _OF_QUERIES, queries + row * pairs * 4)
    # Tiles begin at whole multiples, so that a row meets its keys in the same tiles whatever rows are beside it.
    for low in range(task.low // KEYS * KEYS, task.high, KEYS):
        high = min(task.high, low + KEYS)
        _fetch_keys(p, task, low, high, turned, of_keys, lines)
        _fetch_values(p, task, low, high, values, of_values, lines)
        _product(rows, KEYS // WIDTH, queries, pairs, turned, scores, 0, of_keys, of_queries)
        _weigh(p, task, low, high, scores, of_values, state, sums, weights, of_weights, group)
        _product(rows, stride // WIDTH, weights, KEYS // 2, values, sums, 1, 0, of_weights)
    store_rows(p, task, sums, state + rows * 4, group)


def chunk_words(rows: int, size: int) -> int:
    """Words of 4 bytes that a task of so many rows needs as scratch."""
    stride, pairs = -(-size // WIDTH) * WIDTH, (size + 1) // 2
    of_row = size + KEYS + stride + 2 + pairs + 1 + KEYS // 2 + 1
    return rows * of_row + KEYS * (pairs + 1 + stride // 2 + 1 + stride // 2) + 16
