"""The multiply-add tile: the inner loop of every matrix product on the CPU, written out as vector instructions.

A tile is up to six rows of x against 16 (or a few times 16) columns of w. Its sums stay in registers while ``k`` runs:
with six rows they are twelve registers of eight floats, which with two for w and one for x nearly fill AVX2's sixteen
and keep both multiply-add units busy (the register blocking of Goto and van de Geijn, Anatomy of High-Performance
Matrix Multiplication, 2008, section 5). LLVM cuts the 16-wide vectors to what the machine has.

Each sum adds its products in the order of ``k``, one after the other, so an element of the result does not depend on
how many rows or columns are computed beside it.
"""

from collections.abc import Callable, Iterable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from kernels.cpu.emitting import LINE, bring_near
from kernels.cpu.jit import inline
from kernels.cpu.outline import outlined_intrinsic

WIDTH = 16  # columns of a panel
MAX_ROWS = 6
LEAST_FETCHING = 3  # rows of a fetching tile, what seven are cut into
PANELS = {1: 4, 2: 3, 3: 2}  # panels side by side where few rows would leave sums, and with them time, unused

_I64, _F32 = ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_F32, WIDTH)


def spread(builder: Any, scalar: Any, kind: Any) -> Any:
    """One number -> all 16 lanes of a vector type."""
    lane = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(lane, lane, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH))


def totalled(builder: Any, vector: Any, combine: Callable[[Any, Any, Any], Any]) -> Any:
    """All 16 lanes combined into one number, by halves."""
    width = WIDTH
    while width > 1:
        width //= 2
        low, high = (
            ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(at, at + width))) for at in (0, width)
        )
        vector = combine(
            builder, builder.shuffle_vector(vector, vector, low), builder.shuffle_vector(vector, vector, high)
        )
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def at_element(builder: Any, base: Any, index: Any, kind: Any, itemsize: int) -> Any:
    """Pointer to element ``index`` of an array at address ``base``."""
    address = builder.add(base, builder.mul(index, ir.Constant(_I64, itemsize)))
    return builder.inttoptr(address, ir.PointerType(kind))


def floats_of(builder: Any, base: Any, index: Any) -> Any:
    """16 elements of float32."""
    return builder.load(at_element(builder, base, index, _VECTOR, 4), align=4)


def fused_multiply_add(module: Any) -> Any:
    """``a * b + c`` of vectors, in one rounding where the machine can."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    return cgutils.get_or_insert_function(module, kind, f"llvm.fmuladd.v{WIDTH}f32")


def empty_sums(builder: Any, cells: Iterable[Any]) -> dict[Any, Any]:
    """A variable of 16 zeros per cell; LLVM keeps them in registers."""
    sums = {cell: cgutils.alloca_once(builder, _VECTOR) for cell in cells}
    for variable in sums.values():
        builder.store(ir.Constant(_VECTOR, [0.0] * WIDTH), variable)
    return sums


def emit_tile(
    builder: Any, rows: int, panels: int, arguments: list[Any], fetch: Callable[[Any], None] = lambda turn: None
) -> None:
    """The loop over k, and the loads and stores around it. arguments: those of ``tile``, but for rows and panels.

    fetch: writes what is to be brought near in a turn of the loop.
    """
    x, x_stride, w, w_stride, panel_stride, depth, out, out_stride, begun = arguments
    fma = fused_multiply_add(builder.module)
    cells = [(r, p) for r in range(rows) for p in range(panels)]
    sums = empty_sums(builder, cells)

    def place(r: int, p: int) -> Any:
        index = builder.add(builder.mul(out_stride, ir.Constant(_I64, r)), ir.Constant(_I64, p * WIDTH))
        return at_element(builder, out, index, _VECTOR, 4)

    with builder.if_then(builder.icmp_signed("!=", begun, ir.Constant(_I64, 0))):
        for cell in cells:
            builder.store(builder.load(place(*cell), align=4), sums[cell])
    with cgutils.for_range(builder, depth, intp=_I64) as loop:
        at_k = builder.mul(w_stride, loop.index)
        fetch(loop.index)
        of_w = [
            floats_of(builder, w, builder.add(at_k, builder.mul(panel_stride, ir.Constant(_I64, p))))
            for p in range(panels)
        ]
        for r in range(rows):
            index = builder.add(builder.mul(x_stride, ir.Constant(_I64, r)), loop.index)
            of_x = spread(builder, builder.load(at_element(builder, x, index, _F32, 4), align=4), _VECTOR)
            for p in range(panels):
                added = builder.call(fma, [of_x, of_w[p], builder.load(sums[r, p])])
                builder.store(added, sums[r, p])
    for cell in cells:
        builder.store(builder.load(sums[cell]), place(*cell), align=4)


def _fetch(builder: Any, ahead: Any, thinned: Any, turn: Any) -> None:
    """Have a line brought near, of those from address ``ahead`` on the one numbered ``turn >> thinned``."""
    bring_near(builder, builder.add(ahead, builder.mul(builder.lshr(turn, thinned), ir.Constant(_I64, LINE))))


def _make(rows: int, panels: int) -> Any:
    return outlined_intrinsic(f"tile_{rows}_{panels}", 9, lambda b, v: emit_tile(b, rows, panels, v))


def _make_fetching(rows: int) -> Any:
    def emit(builder: Any, arguments: list[Any]) -> None:
        x, xs, w, depth, out, os, ahead, thinned = arguments
        width, none = ir.Constant(_I64, WIDTH), ir.Constant(_I64, 0)
        words = [x, xs, w, width, none, depth, out, os, none]
        emit_tile(builder, rows, 1, words, lambda turn: _fetch(builder, ahead, thinned, turn))

    return outlined_intrinsic(f"fetching_tile_{rows}", 8, emit)


_f3, _f4, _f5, _f6 = (_make_fetching(rows) for rows in range(LEAST_FETCHING, MAX_ROWS + 1))
_w1, _w2, _w3, _w4, _w5, _w6 = (_make(rows, 1) for rows in range(1, 7))
_w14, _w23, _w32 = (_make(rows, panels) for rows, panels in PANELS.items())


@inline
def panels_at_once(rows: int, left: int) -> int:
    """How many of the ``left`` panels the next tile of so many rows should take."""
    most = 4 if rows == 1 else 3 if rows == 2 else 2 if rows == 3 else 1
    return most if left >= most else 1


@inline
def tile(
    rows: int, panels: int, x: int, xs: int, w: int, ws: int, ps: int, depth: int, out: int, os: int, begun: int
) -> None:
    """``out[r, 16 p + c] = sum over k of x[r, k] * w[p, k, c]``, all float32.

    Args:
        rows: 1 to 6.
        panels: 1, or what ``panels_at_once`` says.
        x: address of row 0; rows lie ``xs`` elements apart.
        w: address of panel 0; panels lie ``ps`` elements apart, their rows ``ws``.
        depth: how many ``k`` there are.
        out: address of row 0; rows lie ``os`` elements apart.
        begun: not 0 where the sums go on from what ``out`` holds.
    """
    if rows == 6:
        _w6(x, xs, w, ws, ps, depth, out, os, begun)
    elif rows == 5:
        _w5(x, xs, w, ws, ps, depth, out, os, begun)
    elif rows == 4:
        _w4(x, xs, w, ws, ps, depth, out, os, begun)
    elif rows == 3 and panels == 2:
        _w32(x, xs, w, ws, ps, depth, out, os, begun)
    elif rows == 3:
        _w3(x, xs, w, ws, ps, depth, out, os, begun)
    elif rows == 2 and panels == 3:
        _w23(x, xs, w, ws, ps, depth, out, os, begun)
    elif rows == 2:
        _w2(x, xs, w, ws, ps, depth, out, os, begun)
    elif panels == 4:
        _w14(x, xs, w, ws, ps, depth, out, os, begun)
    else:
        _w1(x, xs, w, ws, ps, depth, out, os, begun)


@inline
def fetching_tile(x: int, xs: int, w: int, depth: int, out: int, os: int, rows: int, ahead: int, thinned: int) -> None:
    """``tile`` of 3 to 6 rows and one panel, from zero, that brings memory near for another to come.

    Args:
        ahead: address from which on ``depth >> thinned`` lines of the cache, 64 bytes each, are fetched meanwhile.
        thinned: one line for every ``2 ** thinned`` turns of the loop.
    """
    if rows == 6:
        _f6(x, xs, w, depth, out, os, ahead, thinned)
    elif rows == 5:
        _f5(x, xs, w, depth, out, os, ahead, thinned)
    elif rows == 4:
        _f4(x, xs, w, depth, out, os, ahead, thinned)
    else:
        _f3(x, xs, w, depth, out, os, ahead, thinned)
