"""Attention over a pool of int16 on the CPU, in whole numbers: what a prompt chunk's tasks and single rows' share.

Keys go by in tiles of 64 that begin at whole multiples, tiles in parts of 512 keys, and each part's sums are added to
those of the parts before it. A row meets the same tiles and parts in every task, alone or not, so it comes to the
same bits: ``kernels.cpu.integer_softmax`` says why nothing else matters.
"""

from typing import Any

import numpy as np

from kernels.cpu.integer_softmax import LOG2_E
from kernels.cpu.integer_weights import LEAST
from kernels.cpu.jit import inline
from kernels.cpu.memory import float_of_bits, floats, ints, longs, prefetch
from kernels.cpu.rounding import round_run
from kernels.int16_kv.reference import RUN
from kernels.paged_attention.cpu_problem import KEYS, Problem, Task

TABLE = KEYS // RUN  # addresses of a tile's runs


@inline
def query_factor(p: Problem) -> Any:
    """What scores are multiplied by beside the steps: base 2, unless they are to be capped first."""
    return np.float32(p.scale * (LOG2_E if p.softcap == 0.0 else 1.0))


@inline
def round_query(p: Problem, row: int, head: int, most: int, to: int) -> Any:
    """A row's query head as int16 ``[size]``; what a step is worth."""
    return round_run(p.q + (row * p.q_row + head * p.q_head) * 4, p.size, most, to)


@inline
def _head_address(p: Problem, task: Task, position: int) -> Any:
    """Where the block of a position begins for the task's head."""
    table = ints(p.tables + task.sequence * p.table_width * 4, p.table_width)
    block = np.int64(table[position // p.block_size])
    return p.pool + (block * p.block_stride + task.head * p.head_stride) * 2


@inline
def open_tile(p: Problem, task: Task, low: int, high: int, keys: int, values: int, steps: int) -> Any:
    """Addresses of a tile's runs, ``keys`` and ``values``, and the steps of both, float32 ``[2, KEYS]``.

    Returns:
        How many runs of 16 the tile has.
    """
    of_keys, of_values = longs(keys, TABLE), longs(values, TABLE)
    key_steps, value_steps = floats(steps, KEYS), floats(steps + KEYS * 4, KEYS)
    runs = (high - low + RUN - 1) // RUN
    for run in range(runs):
        position = low + run * RUN
        head, slot = _head_address(p, task, position), position % p.block_size
        of_keys[run] = head + slot * p.size * 2
        of_values[run] = of_keys[run] + p.value_offset * 2
        behind = head + p.block_size * p.size * 2 + slot * 4
        found = floats(behind, RUN), floats(behind + p.value_offset * 2, RUN)
        for i in range(RUN):
            key_steps[run * RUN + i] = found[0][i]
            value_steps[run * RUN + i] = found[1][i]
    return runs


@inline
def announce_keys(p: Problem, task: Task, low: int, runs: int, keys: int) -> None:
    """Addresses of the runs of keys from a position on, for the tile before it to bring near; steps are asked for here.

    Behind the task's last key the last run stands in.
    """
    of_keys = longs(keys, TABLE)
    for run in range(runs):
        position = min(low + run * RUN, task.high - 1) // RUN * RUN
        head, slot = _head_address(p, task, position), position % p.block_size
        of_keys[run] = head + slot * p.size * 2
        behind = head + p.block_size * p.size * 2 + slot * 4
        prefetch(behind)
        prefetch(behind + p.value_offset * 2)


@inline
def power(x: Any) -> Any:
    """2**x of a whole float32 x <= 0, exactly; 0 below -126."""
    return float_of_bits((np.int32(max(x, np.float32(-127))) + np.int32(127)) << np.int32(23))


@inline
def begin(reference: int, total: int, rows: int) -> None:
    """Rows that have seen no key."""
    references, totals = floats(reference, rows), floats(total, rows)
    for row in range(rows):
        references[row], totals[row] = np.float32(LEAST), np.float32(0)
