"""Attention of a sequence's only row (a decode step) on the CPU: the pool is read where it lies, once."""

from typing import Any

import numpy as np

from kernels.cpu.dots import MOST_ROWS, dots, weighted_sums
from kernels.cpu.exponential import exponential
from kernels.cpu.jit import inline
from kernels.cpu.memory import copy, fill, floats
from kernels.cpu.softmax_row import softmax_row
from kernels.cpu.tile import WIDTH
from kernels.paged_attention.cpu_problem import (
    KEYS,
    Problem,
    Task,
    as_floats,
    key_address,
    padded,
    run_length,
)
from kernels.paged_attention.cpu_vectors import LOWEST, cap, dot, scale


@inline
def _fetch_queries(p: Problem, task: Task, queries: int, group: int) -> None:
    """The group's query heads, scaled, one after another."""
    factor = np.float32(p.scale)
    for g in range(group):
        source = floats(p.q + (task.row * p.q_row + (task.head * group + g) * p.q_head) * 4, p.size)
        target = floats(queries + g * p.size * 4, p.size)
        for i in range(p.size):
            target[i] = source[i] * factor


@inline
def _dot_by_dot(queries: int, keys: int, size: int, count: int, scores: int, group: int) -> None:
    for g in range(group):
        for j in range(count):
            score = dot(floats(queries + g * size * 4, size), floats(keys + j * size * 4, size))
            floats(scores + (g * KEYS + j) * 4, 1)[0] = score


@inline
def _score(p: Problem, task: Task, low: int, high: int, queries: int, scores: int, group: int, buffer: int) -> None:
    """``scores[g, j] = queries[g] @ keys[low + j]``; meanwhile the values of the same positions are brought near."""
    position = low
    while position < high:
        keys, count = key_address(p, task, position), run_length(p, position, high)
        to, ahead = scores + (position - low) * 4, keys + p.value_offset * p.itemsize
        keys = as_floats(p, keys, count, buffer)
        if p.size % WIDTH == 0:
            for g in range(0, group, MOST_ROWS):
                rows, at = min(MOST_ROWS, group - g), queries + g * p.size * 4
                dots(rows, at, keys, p.size, count, to + g * KEYS * 4, KEYS, ahead, p.itemsize)
        else:
            _dot_by_dot(queries, keys, p.size, count, to, group)
        position += count


@inline
def _add_one_by_one(weights: int, values: int, count: int, size: int, sums: int, group: int) -> None:
    stride = padded(size)
    for g in range(group):
        total = floats(sums + g * stride * 4, size)
        weight = floats(weights + g * KEYS * 4, count)
        for j in range(count):
            value = floats(values + j * size * 4, size)
            for i in range(size):
                total[i] += weight[j] * value[i]


@inline
def _needed_next(p: Problem, task: Task, after: Task, low: int, position: int) -> Any:
    """Address of the keys that are read when those of a position, in the stretch from low on, are done with."""
    if position + KEYS < task.high:
        return key_address(p, task, position + KEYS)
    return key_address(p, after, min(after.low + position - low, after.high - 1))


@inline
def _add_values(
    p: Problem, task: Task, after: Task, low: int, high: int, weights: int, sums: int, group: int, buffer: int
) -> None:
    position = low
    while position < high:
        values = key_address(p, task, position) + p.value_offset * p.itemsize
        count, at = run_length(p, position, high), weights + (position - low) * 4
        ahead = _needed_next(p, task, after, low, position)
        values = as_floats(p, values, count, buffer)
        if p.size % WIDTH == 0:
            for g in range(0, group, MOST_ROWS):
                rows, of_g, to = min(MOST_ROWS, group - g), at + g * KEYS * 4, sums + g * p.size * 4
                weighted_sums(rows, of_g, KEYS, values, p.size, count, to, ahead, p.itemsize)
        else:
            _add_one_by_one(at, values, count, p.size, sums, group)
        position += count


@inline
def _store(p: Problem, task: Task, sums: int, group: int) -> None:
    """The rows' results, or a partial one: all that lies at ``sums``."""
    stride = padded(p.size)
    if task.partial >= 0:
        words = group * (stride + 2)
        copy(sums, words, p.partials + task.partial * words * 4)
        return
    total = floats(sums + group * (stride + 1) * 4, group)
    for g in range(group):
        out = p.out + (task.row * p.heads + task.head * group + g) * p.size * 4
        copy(sums + g * stride * 4, p.size, out)
        scale(floats(out, p.size), np.float32(1) / total[g])


@inline
def attend_single(p: Problem, task: Task, after: Task, scratch: int) -> None:
    """Compute a task of one row.

    Scratch: queries, scores, sums ``[group, padded]``, largest, total, then a buffer. after: the same member's next
    task, or this one.
    """
    group = p.heads // p.kv_heads
    stride = padded(p.size)
    scores = scratch + group * p.size * 4
    sums = scores + group * KEYS * 4
    largest = sums + group * stride * 4
    total = largest + group * 4
    buffer = total + group * 4
    fill(sums, group * stride, np.float32(0))
    fill(largest, group, LOWEST)
    fill(total, group, np.float32(0))
    _fetch_queries(p, task, scratch, group)
    for low in range(task.low, task.high, KEYS):
        high = min(task.high, low + KEYS)
        _score(p, task, low, high, scratch, scores, group, buffer)
        for g in range(group):
            row = scores + g * KEYS * 4
            if p.softcap != 0.0:
                cap(floats(row, high - low), np.float32(p.softcap))
            factor = softmax_row(row, 0, high - low, largest + g * 4, total + g * 4)
            if factor != np.float32(1):
                scale(floats(sums + g * stride * 4, stride), factor)
        _add_values(p, task, after, low, high, scores, sums, group, buffer)
    _store(p, task, sums, group)


@inline
def combine_floats(p: Problem, task: Task, parts: int, g: int, group: int) -> None:
    """One query head: bring its parts to the largest of all and add them in the order of their keys."""
    stride = padded(p.size)
    words = group * (stride + 2)
    first = p.partials + task.partial * words * 4
    tops, totals = (
        floats(first + group * stride * 4, parts * words),
        floats(first + group * (stride + 1) * 4, parts * words),
    )
    top = LOWEST
    for part in range(parts):
        top = max(top, tops[part * words + g])
    at = p.out + (task.row * p.heads + task.head * group + g) * p.size * 4
    fill(at, p.size, np.float32(0))
    out, total = floats(at, p.size), np.float32(0)
    for part in range(parts):
        factor = exponential(tops[part * words + g] - top)
        total += factor * totals[part * words + g]
        sums = floats(first + (part * words + g * stride) * 4, p.size)
        for i in range(p.size):
            out[i] += factor * sums[i]
    scale(out, np.float32(1) / total)
