"""What compiled attention knows of its batch, and of one task in it."""

from typing import Any, NamedTuple

import numpy as np
from numba import carray

from kernels.cpu.half import widen
from kernels.cpu.jit import inline
from kernels.cpu.memory import double_of_bits, ints, longs

PART = 512  # keys of one task of a sequence with one row: a long one is shared by all threads
# Rows (queries times heads of a group) of one task of a prompt chunk: of few the keys are laid out too often, of many
# the sums leave the nearest cache. Whole numbers need no laying out.
TILE_ROWS, TILE_ROWS_INT16 = 192, 96
KEYS = 64  # keys that are worked on at a time
LAYOUT = "28q2d"
TASK_WORDS = 7


class Problem(NamedTuple):
    """Addresses, and strides in elements. ``pool`` is where the layer's keys of block 0 begin.

    itemsize: bytes of the pool's elements.
    """

    control: int
    q: int
    q_row: int
    q_head: int
    pool: int
    itemsize: int
    block_stride: int
    value_offset: int
    head_stride: int
    block_size: int
    tables: int
    table_width: int
    query_start: int
    kv_lengths: int
    sequences: int
    rows: int
    heads: int
    kv_heads: int
    size: int
    window: int  # 0 for none
    out: int
    tasks: int
    counts: int  # [number of tasks, number of partial results]
    partials: int
    scratch: int
    scratch_size: int  # floats of one member's
    invariant: int  # 1: a row is computed as a row of a chunk, whether or not it stands alone
    kind: int  # of the pool's elements, as kernels.cpu.arguments numbers them
    scale: float
    softcap: float  # 0 for none


class Task(NamedTuple):
    """Some rows of a sequence against the keys ``low`` to ``high - 1``, for one key head."""

    sequence: int
    head: int
    row: int  # in the batch
    rows: int
    low: int
    high: int
    partial: int  # where the result goes that others are to be added to; -1: it is the whole


@inline
def problem_of(arguments: Any) -> Problem:
    """Read the argument words."""
    a = carray(arguments, (30,))
    return Problem(
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16],
        a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26], a[27], double_of_bits(a[28]),
        double_of_bits(a[29]),
    )  # fmt: skip


@inline
def padded(size: int) -> int:
    """The head size rounded up to whole panels."""
    return (size + 15) // 16 * 16


@inline
def task_at(p: Problem, index: int) -> Task:
    """A task of the list."""
    t = longs(p.tasks + index * TASK_WORDS * 8, TASK_WORDS)
    return Task(t[0], t[1], t[2], t[3], t[4], t[5], t[6])


@inline
def key_address(p: Problem, task: Task, position: int) -> Any:
    """Where the key of a position lies; its value is ``value_offset`` elements further on."""
    table = ints(p.tables + task.sequence * p.table_width * 4, p.table_width)
    block, offset = np.int64(table[position // p.block_size]), position % p.block_size
    return p.pool + (block * p.block_stride + task.head * p.head_stride + offset * p.size) * p.itemsize


@inline
def run_length(p: Problem, position: int, end: int) -> int:
    """How many keys from a position on lie side by side: those of its block."""
    return min(p.block_size - position % p.block_size, end - position)


@inline
def as_floats(p: Problem, address: int, count: int, buffer: int) -> int:
    """Where ``count`` keys or values of the pool lie as float32: in the pool itself, or from now on in the buffer."""
    if p.itemsize == 4:
        return address
    widen(address, count * p.size, buffer)
    return buffer
