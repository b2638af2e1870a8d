"""The linear map of int8 weights where the processor multiplies bytes: rows of x rounded to int8 in groups of 64.

A group is rounded by its own largest element, so what a row gives depends on nothing beside it.
"""

from typing import Any

from numba import carray

from kernels.cpu.byte_tile import GROUP, MOST_ROWS, byte_columns
from kernels.cpu.group_rounding import round_groups
from kernels.cpu.team import take_task
from kernels.cpu.tile import WIDTH
from kernels.linear.cpu_tasks import ROW_BLOCK, add_bias


def linear_bytes(arguments: Any, member: int, members: int) -> None:
    """Tasks as those of float32 weights; each member rounds a block of rows for itself, when it comes to it."""
    a = carray(arguments, (14,))
    control, x, xs, rows, depth, w, panels, scale, bias, out, os, group, scratch, words = (
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
    )  # fmt: skip
    row_groups = (depth + GROUP - 1) // GROUP
    spare = scratch + member * words * 4
    of_groups = spare + GROUP * 4
    rounded = of_groups + ROW_BLOCK * 2 * row_groups * 4
    groups = (panels + group - 1) // group
    tasks = groups * ((rows + ROW_BLOCK - 1) // ROW_BLOCK)
    have = -1
    task = take_task(control, tasks, member, members)
    while task < tasks:
        block, first = task // groups, task % groups * group
        begin, height = block * ROW_BLOCK, min(ROW_BLOCK, rows - block * ROW_BLOCK)
        if block != have:
            for row in range(height):
                of_row = of_groups + row * 2 * row_groups * 4
                round_groups(x + (begin + row) * xs * 4, depth, rounded + row * row_groups * GROUP, of_row, spare)
            have = block
        count, row = min(group, panels - first), 0
        while row < height:
            some = min(MOST_ROWS, height - row)
            to = out + ((begin + row) * os + first * WIDTH) * 4
            byte_columns(
                some, count, rounded + row * row_groups * GROUP, w + first * row_groups * GROUP * WIDTH, row_groups,
                to, os, scale + first * WIDTH * 4, of_groups + row * 2 * row_groups * 4,
            )  # fmt: skip
            if bias != 0:
                add_bias(to, os, some, bias + first * WIDTH * 4, count * WIDTH)
            row += some
        task = take_task(control, tasks, member, members)


def scratch_words(depth: int) -> int:
    """Words of 4 bytes that a member needs: a block of rounded rows, their steps and sums, and a group to spare."""
    groups = (depth + GROUP - 1) // GROUP
    return GROUP + ROW_BLOCK * groups * (2 + GROUP // 4)
