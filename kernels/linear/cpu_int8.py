"""The linear map of int8 weights: rows of x rounded to int16, whole products and sums, scaled at the end.

A row of x is rounded by its own largest element, so what it gives depends on nothing beside it.
"""

from typing import Any

from numba import carray

from kernels.cpu.integer_tile import integer_columns
from kernels.cpu.memory import floats
from kernels.cpu.rounding import round_run
from kernels.cpu.team import take_task
from kernels.cpu.tile import MAX_ROWS, WIDTH
from kernels.linear.cpu_tasks import ROW_BLOCK, add_bias

_PIECE = 288  # pairs of inputs whose products int32 adds up: 576 inputs, the width of a small model, go in one
LARGEST = (2**31 - 1) // (127 * 2 * _PIECE)  # of a rounded x: 29,355, so it has 15 bits


def linear_int8(arguments: Any, member: int, members: int) -> None:
    """Tasks as those of float32 weights; each member rounds a block of rows for itself, when it comes to it."""
    a = carray(arguments, (14,))
    control, x, xs, rows, depth, w, panels, scale, bias, out, os, group, scratch, words = (
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
    )  # fmt: skip
    pairs = (depth + 1) // 2
    of_rows = scratch + member * words * 4
    rounded = of_rows + ROW_BLOCK * 4
    factors = floats(of_rows, ROW_BLOCK)
    groups = (panels + group - 1) // group
    tasks = groups * ((rows + ROW_BLOCK - 1) // ROW_BLOCK)
    have = -1
    task = take_task(control, tasks, member, members)
    while task < tasks:
        block, first = task // groups, task % groups * group
        begin, height = block * ROW_BLOCK, min(ROW_BLOCK, rows - block * ROW_BLOCK)
        if block != have:
            for row in range(height):
                factors[row] = round_run(x + (begin + row) * xs * 4, depth, LARGEST, rounded + row * pairs * 4)
            have = block
        count, row = min(group, panels - first), 0
        while row < height:
            some = min(MAX_ROWS, height - row)
            to = out + ((begin + row) * os + first * WIDTH) * 4
            integer_columns(
                some, count, rounded + row * pairs * 4, pairs, w + first * pairs * 2 * WIDTH, pairs, _PIECE, to, os,
                scale + first * WIDTH * 4, of_rows + row * 4,
            )  # fmt: skip
            if bias != 0:
                add_bias(to, os, some, bias + first * WIDTH * 4, count * WIDTH)
            row += some
        task = take_task(control, tasks, member, members)


def scratch_words(depth: int) -> int:
    """Words of 4 bytes that a member needs: a block of rounded rows and their scales."""
    return ROW_BLOCK * ((depth + 1) // 2 + 1)
