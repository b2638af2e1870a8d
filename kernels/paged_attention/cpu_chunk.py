"""Attention of several rows of a sequence (a prompt chunk) on the CPU.

A task's queries stay in the cache while its keys go by, 64 at a time: copied out of their blocks once, the keys turned
into panels, then two matrix products with the softmax between (the loop order of FlashAttention, arXiv:2205.14135,
section 3.1, with queries outside).
"""

import numpy as np

from kernels.cpu.jit import inline
from kernels.cpu.memory import copy, fill, floats
from kernels.cpu.softmax_row import softmax_row
from kernels.cpu.tile import MAX_ROWS, WIDTH, panels_at_once, tile
from kernels.paged_attention.cpu_problem import KEYS, Problem, Task, as_floats, key_address, padded, run_length
from kernels.paged_attention.cpu_vectors import LOWEST, cap, scale


@inline
def _fetch_queries(p: Problem, task: Task, queries: int, group: int) -> None:
    """Row ``i * group + g`` is head ``g`` of the group of the task's query ``i``, scaled."""
    factor = np.float32(p.scale)
    for i in range(task.rows):
        for g in range(group):
            source = floats(p.q + ((task.row + i) * p.q_row + (task.head * group + g) * p.q_head) * 4, p.size)
            target = floats(queries + (i * group + g) * p.size * 4, p.size)
            for d in range(p.size):
                target[d] = source[d] * factor


@inline
def _turn(keys: int, count: int, size: int, at: int, turned: int) -> None:
    """Keys ``[count, size]`` -> columns ``at ..`` of panels ``[KEYS / 16, size, 16]``."""
    for j in range(count):
        key = floats(keys + j * size * 4, size)
        column = floats(turned + ((at + j) // WIDTH * size * WIDTH + (at + j) % WIDTH) * 4, size * WIDTH)
        for d in range(size):
            column[d * WIDTH] = key[d]


@inline
def _fetch_keys(p: Problem, task: Task, low: int, high: int, turned: int, values: int, buffer: int) -> None:
    """Keys turned into panels, values ``[KEYS, padded]``; 0 for what the task does not see, not what lies there."""
    stride = padded(p.size)
    if high - low < KEYS or low < task.low:
        fill(turned, KEYS * p.size, np.float32(0))
    position = max(low, task.low)
    while position < high:
        keys, count = key_address(p, task, position), run_length(p, position, high)
        _turn(as_floats(p, keys, count, buffer), count, p.size, position - low, turned)
        run = as_floats(p, keys + p.value_offset * p.itemsize, count, buffer)
        for j in range(count):
            copy(run + j * p.size * 4, p.size, values + (position - low + j) * stride * 4)
        position += count


@inline
def _product(
    rows: int, panels: int, x: int, xs: int, w: int, ws: int, ps: int, depth: int, out: int, begun: int
) -> None:
    """All rows by all panels; rows of the result lie ``16 * panels`` elements apart."""
    for row in range(0, rows, MAX_ROWS):
        height, panel = min(MAX_ROWS, rows - row), 0
        while panel < panels:
            wide = panels_at_once(height, panels - panel)
            to = out + (row * panels + panel) * WIDTH * 4
            tile(height, wide, x + row * xs * 4, xs, w + panel * ps * 4, ws, ps, depth, to, panels * WIDTH, begun)
            panel += wide


@inline
def _weigh(p: Problem, task: Task, low: int, high: int, scores: int, state: int, sums: int, group: int) -> None:
    """Each row's scores -> weights; 0 where the row sees no key."""
    rows, stride = task.rows * group, padded(p.size)
    for row in range(rows):
        # The task ends with the last key that its last row sees, so each row before sees one key less.
        position = task.high - task.rows + row // group
        first = 0 if p.window == 0 else max(0, position - p.window + 1 - low)
        end = max(first, min(high, position + 1) - low)
        weights = scores + row * KEYS * 4
        if first >= end:
            fill(weights, KEYS, np.float32(0))
            continue
        if p.softcap != 0.0:
            cap(floats(weights + first * 4, end - first), np.float32(p.softcap))
        factor = softmax_row(weights, first, end, state + row * 4, state + (rows + row) * 4)
        if factor != np.float32(1):
            scale(floats(sums + row * stride * 4, stride), factor)


@inline
def _store(p: Problem, task: Task, sums: int, total: int, group: int) -> None:
    stride = padded(p.size)
    for row in range(task.rows * group):
        head = (task.row + row // group) * p.heads + task.head * group + row % group
        out = p.out + head * p.size * 4
        copy(sums + row * stride * 4, p.size, out)
        scale(floats(out, p.size), np.float32(1) / floats(total + row * 4, 1)[0])


@inline
def attend_chunk(p: Problem, task: Task, scratch: int) -> None:
    """Compute a task of several rows. Scratch: queries, scores, sums, keys, values, largest, total, then a buffer."""
    group = p.heads // p.kv_heads
    rows, stride = task.rows * group, padded(p.size)
    scores = scratch + rows * p.size * 4
    sums = scores + rows * KEYS * 4
    turned = sums + rows * stride * 4
    values = turned + KEYS * p.size * 4
    state = values + KEYS * stride * 4
    fill(sums, rows * stride, np.float32(0))
    fill(values, KEYS * stride, np.float32(0))
    fill(state, rows, LOWEST)
    fill(state + rows * 4, rows, np.float32(0))
    _fetch_queries(p, task, scratch, group)
    # Tiles begin at whole multiples, so that a row meets its keys in the same tiles whatever rows are beside it.
    for low in range(task.low // KEYS * KEYS, task.high, KEYS):
        high = min(task.high, low + KEYS)
        _fetch_keys(p, task, low, high, turned, values, state + 2 * rows * 4)
        _product(rows, KEYS // WIDTH, scratch, p.size, turned, WIDTH, p.size * WIDTH, p.size, scores, 0)
        _weigh(p, task, low, high, scores, state, sums, group)
        _product(rows, stride // WIDTH, scores, KEYS, values, stride, WIDTH, high - low, sums, 1)
    _store(p, task, sums, state + rows * 4, group)
