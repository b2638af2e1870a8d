"""The linear map of int8 weights where the processor multiplies bytes: rows of x rounded to int8 in groups of 64.

A group is rounded by its own largest element, so what a row gives depends on nothing beside it.
"""

from typing import Any

from kernels.cpu.byte_tile import GROUP, MOST_ROWS, byte_columns
from kernels.cpu.group_rounding import round_groups
from kernels.cpu.jit import inline
from kernels.cpu.team import take_task
from kernels.cpu.tile import WIDTH
from kernels.linear.cpu_tasks import ROW_BLOCK, SUMS, Product, add_bias, block_begin, multiplying, product_of


@inline
def _columns(p: Product, x: int, of_groups: int, first: int, panels: int, rows: int, out: int, stride: int) -> None:
    """Up to six rows by a run of panels."""
    groups = (p.depth + GROUP - 1) // GROUP
    w, scale = p.w + first * groups * GROUP * WIDTH, p.scale + first * WIDTH * 4
    byte_columns(rows, panels, x, w, groups, out, stride, scale, of_groups)
    add_bias(p, first, panels, rows, out, stride)


_multiply = multiplying(_columns)


def linear_bytes(arguments: Any, member: int, members: int) -> None:
    """Tasks as those of float32 weights; each member rounds a block of rows for itself, when it comes to it."""
    p = product_of(arguments)
    row_groups = (p.depth + GROUP - 1) // GROUP
    sums = p.scratch + member * p.words * 4
    spare = sums + SUMS * 4
    of_groups = spare + GROUP * 4
    rounded = of_groups + ROW_BLOCK * 2 * row_groups * 4
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
                of_row = of_groups + row * 2 * row_groups * 4
                source = p.x + (begin + row) * p.x_stride * 4
                round_groups(source, p.depth, rounded + row * row_groups * GROUP, of_row, spare)
            have = block
        count, row = min(p.group, p.panels - first), 0
        while row < height:
            some = min(MOST_ROWS, height - row)
            to = p.out + ((begin + row) * p.out_stride + first * WIDTH) * 4
            x, steps = rounded + row * row_groups * GROUP, of_groups + row * 2 * row_groups * 4
            _multiply(p, x, steps, first, count, some, to, sums)
            row += some
        task = take_task(p.control, tasks, member, members)


def scratch_words(depth: int) -> int:
    """Words of 4 bytes that a member needs behind its sums: a block of rounded rows, their steps, a group to spare."""
    groups = (depth + GROUP - 1) // GROUP
    return GROUP + ROW_BLOCK * groups * (2 + GROUP // 4)
