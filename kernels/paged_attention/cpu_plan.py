"""How a batch is cut into tasks that threads take one by one."""

from typing import Any

import numpy as np

from kernels.cpu.arguments import INT16
from kernels.cpu.jit import inline
from kernels.cpu.memory import fill, ints, longs
from kernels.paged_attention.cpu_problem import PART, TASK_WORDS, TILE_ROWS, TILE_ROWS_INT16, Problem, Task, problem_of


@inline
def _append(p: Problem, task: Task) -> None:
    counts = longs(p.counts, 2)
    words = longs(p.tasks + counts[0] * TASK_WORDS * 8, TASK_WORDS)
    words[0], words[1], words[2], words[3] = task.sequence, task.head, task.row, task.rows
    words[4], words[5], words[6] = task.low, task.high, task.partial
    counts[0] += 1


@inline
def _clear_rows(p: Problem, first: int, end: int) -> None:
    width = p.heads * p.size
    fill(p.out + first * width * 4, (end - first) * width, np.float32(0))


@inline
def _cut_chunk(p: Problem, sequence: int, first: int, end: int, length: int) -> None:
    """Tasks of a sequence with several rows; the last rows, which see most, first."""
    tile_rows = TILE_ROWS_INT16 if p.kind == INT16 else TILE_ROWS
    step = max(1, tile_rows // (p.heads // p.kv_heads))
    tiles = (end - first + step - 1) // step
    for tile in range(tiles - 1, -1, -1):
        row, stop = first + tile * step, min(end, first + (tile + 1) * step)
        low = 0 if p.window == 0 else max(0, length - (end - row) - p.window + 1)
        for head in range(p.kv_heads):
            _append(p, Task(sequence, head, row, stop - row, low, length - (end - stop), -1))


@inline
def _cut_single(p: Problem, sequence: int, row: int, length: int) -> None:
    """Tasks of a sequence with one row: parts of its keys, which begin at whole multiples."""
    counts = longs(p.counts, 2)
    first = 0 if p.window == 0 else max(0, length - p.window)
    for head in range(p.kv_heads):
        for begin in range(first // PART * PART, length, PART):
            low, high = max(first, begin), min(length, begin + PART)
            partial = -1
            if high - low < length - first:
                partial = counts[1]
                counts[1] += 1
            _append(p, Task(sequence, head, row, 1, low, high, partial))


def plan(arguments: Any, _member: int, _members: int) -> None:
    """Write the list of tasks, from the last rows to the first; chunks before the rest, as their tasks are the longest.

    Rows of no key are zeroed.
    """
    p = problem_of(arguments)
    starts, lengths = ints(p.query_start, p.sequences + 1), ints(p.kv_lengths, p.sequences)
    counts = longs(p.counts, 2)
    counts[0], counts[1] = 0, 0
    fewest = 1 if p.invariant == 1 else 2  # rows that are computed as a chunk
    for s in range(p.sequences - 1, -1, -1):
        if lengths[s] > 0 and starts[s + 1] - starts[s] >= fewest:
            _cut_chunk(p, s, starts[s], starts[s + 1], lengths[s])
        elif lengths[s] == 0:
            _clear_rows(p, starts[s], starts[s + 1])
    for s in range(p.sequences - 1, -1, -1):
        if lengths[s] > 0 and starts[s + 1] - starts[s] == 1 and fewest > 1:
            _cut_single(p, s, starts[s], lengths[s])
    _clear_rows(p, starts[p.sequences], p.rows)
