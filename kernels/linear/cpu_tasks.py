"""What the linear maps of all kinds of weights share: their arguments, how the work is cut, the bias and the gate."""

from collections.abc import Callable
from typing import Any, NamedTuple

from numba import carray

from kernels.cpu.jit import inline
from kernels.cpu.memory import floats
from kernels.cpu.tile import WIDTH
from kernels.gated_activation.cpu import activate

ROW_BLOCK = 96  # rows of x that stay in the second-level cache while a group of panels goes over them
MAX_GROUP = 12  # panels of one task
GATED_GROUP = 6  # panels of the gate, and as many beside them, of one task
GATED_GROUP_OF_ONE = 8  # of a single row's, as many as its tile takes at once
NOT_GATED = -1  # in place of an activation
ROWS_AT_ONCE = 6  # that any tile takes
LAYOUT = "15q"
# Floats of one member's unfinished sums: a tile's rows by a group of panels; of float32 a block's by two.
SUMS = max(ROWS_AT_ONCE * 2 * MAX_GROUP, ROW_BLOCK * 4) * WIDTH


class Product(NamedTuple):
    """A linear map's operands: addresses, sizes, and strides in elements.

    Where there is an activation, panels is the number of those of the gate, and as many lie behind them; ``out`` is as
    wide as the gate.
    """

    control: int
    x: int
    x_stride: int
    rows: int
    depth: int
    w: int
    panels: int
    scale: int  # 0 where the weights have none
    bias: int  # 0 for none
    out: int
    out_stride: int
    group: int  # panels of one task
    scratch: int
    words: int  # of 4 bytes that a member has of it: SUMS, then what the kind of weights needs
    activation: int  # as kernels.gated_activation.cpu numbers them, or NOT_GATED


@inline
def product_of(arguments: Any) -> Product:
    """Read the argument words."""
    a = carray(arguments, (15,))
    return Product(
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14]
    )  # fmt: skip


@inline
def block_begin(rows: int, block: int, blocks: int) -> int:
    """The first row of a block: all of whole tiles but the last, and as even as those allow, for members to halve."""
    tiles = (rows + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE
    return min(rows, tiles * block // blocks * ROWS_AT_ONCE)


@inline
def add_bias(p: Product, first: int, panels: int, rows: int, out: int, stride: int) -> None:
    """Add the bias of a run of panels, if there is one, to rows that lie ``stride`` elements apart."""
    if p.bias == 0:
        return
    columns = panels * WIDTH
    added = floats(p.bias + first * WIDTH * 4, columns)
    for row in range(rows):
        sums = floats(out + row * stride * 4, columns)
        for column in range(columns):
            sums[column] += added[column]


@inline
def gate(p: Product, sums: int, rows: int, panels: int, out: int) -> None:
    """From float32 ``[rows, 2, panels, 16]``, the gate's and the others', to rows of the result."""
    columns = panels * WIDTH
    for row in range(rows):
        of_gate = sums + row * 2 * columns * 4
        activate(p.activation, of_gate, of_gate + columns * 4, columns, out + row * p.out_stride * 4)


def multiplying(columns: Callable[[Product, int, int, int, int, int, int, int], None]) -> Any:
    """What multiplies a run of panels by a tile's rows, and gates them where they are to be.

    columns: ``(p, x, steps, first, panels, rows, out, stride)`` of the kind of weights; x and steps are for it.
    """

    @inline
    def multiply(p: Product, x: int, steps: int, first: int, panels: int, rows: int, to: int, sums: int) -> None:
        if p.activation == NOT_GATED:
            columns(p, x, steps, first, panels, rows, to, p.out_stride)
        else:
            columns(p, x, steps, first, panels, rows, sums, 2 * panels * WIDTH)
            columns(p, x, steps, p.panels + first, panels, rows, sums + panels * WIDTH * 4, 2 * panels * WIDTH)
            gate(p, sums, rows, panels, to)

    return multiply


def panels_per_task(panels: int, num_threads: int, most: int = MAX_GROUP) -> int:
    """Enough tasks that no member waits long for another."""
    return min(most, max(1, panels // (4 * num_threads)))
