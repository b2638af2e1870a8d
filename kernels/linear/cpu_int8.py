"""The linear map of int8 weights: rows of x rounded to int16, whole products and sums, scaled at the end.

A row of x is rounded by its own largest element, so what it gives depends on nothing beside it.
"""

from typing import Any

from kernels.cpu.integer_tile import integer_columns
from kernels.cpu.jit import inline
from kernels.cpu.memory import floats
from kernels.cpu.rounding import round_run
from kernels.cpu.team import take_task
from kernels.cpu.tile import MAX_ROWS, WIDTH
from kernels.linear.cpu_tasks import ROW_BLOCK, SUMS, Product, add_bias, block_begin, multiplying, product_of

_PIECE = 288  # pairs of inputs whose products int32 adds up: 576 inputs, the width of a small model, go in one
LARGEST = (2**31 - 1) // (127 * 2 * _PIECE)  # of a rounded x: 29,355, so it has 15 bits


@inline
def _columns(p: Product, x: int, factors: int, first: int, panels: int, rows: int, out: int, stride: int) -> None:
    """Up to six rows by a run of panels."""
    pairs = (p.depth + 1) // 2
    w, scale = p.w + first * pairs * 2 * WIDTH, p.scale + first * WIDTH * 4
    integer_columns(rows, panels, x, pairs, w, pairs, _PIECE, out, stride, scale, factors)
    add_bias(p, first, panels, rows, out, stride)


_multiply = multiplying(_columns)


def linear_int8(arguments: Any, member: int, members: int) -> None:
    """Tasks as those of float32 weights; each member rounds a block of rows for itself, when it comes to it."""
    p = product_of(arguments)
    pairs = (p.depth + 1) // 2
    sums = p.scratch + member * p.words * 4
    of_rows = sums + SUMS * 4
    rounded = of_rows + ROW_BLOCK * 4
    factors = floats(of_rows, ROW_BLOCK)
    groups = (p.panels + p.group - 1) // p.group
    blocks = (p.rows + ROW_BLOCK - 1) // ROW_BLOCK
    tasks = groups * blocks
    have = -1
    task = take_task(p.control, tasks, member, members)
    while task < tasks:
        block, first = task // groups, task % groups * p.group
        begin = block_begin(p.rows, block, blocks)
        height = block_begin(p.rows, block + 1, blocks) - begin
        if block != have:
            for row in range(height):
                source = p.x + (begin + row) * p.x_stride * 4
                factors[row] = round_run(source, p.depth, LARGEST, rounded + row * pairs * 4)
            have = block
        count, row = min(p.group, p.panels - first), 0
        while row < height:
            some = min(MAX_ROWS, height - row)
            to = p.out + ((begin + row) * p.out_stride + first * WIDTH) * 4
            x, steps = rounded + row * pairs * 4, of_rows + row * 4
            _multiply(p, x, steps, first, count, some, to, sums)
            row += some
        task = take_task(p.control, tasks, member, members)


def scratch_words(depth: int) -> int:
    """Words of 4 bytes that a member needs behind its sums: a block of rounded rows and their scales."""
    return ROW_BLOCK * ((depth + 1) // 2 + 1)
