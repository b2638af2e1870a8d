"""The multiply-add tile in whole numbers: int16 by int8, added up in int32.

A processor multiplies and adds twice as many numbers of 16 bits at once as of 32 (x86's pmaddwd, Arm's smlal), so such
a product takes about half the time of one in float32, and need not widen 8-bit weights so far. Whole numbers add up
exactly, in any order: an element of the result cannot depend on what is computed beside it.

int32 holds the sum of a limited number of products: the callers' ranges keep within it, and longer sums are cut into
pieces that float32 adds up.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numba.core import cgutils

from kernels.cpu.jit import inline
from kernels.cpu.outline import outlined_intrinsic
from kernels.cpu.tile import MAX_ROWS, PANELS, WIDTH, at_element, floats_of, panels_at_once, spread

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_SUMS = ir.VectorType(_I32, WIDTH)
_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
_PAIRS = ir.VectorType(_I16, 2 * WIDTH)
_NARROW = ir.VectorType(ir.IntType(8), 2 * WIDTH)
_ONE_FLOAT = ir.FloatType()


def _part(first: int, step: int, count: int) -> Any:
    """Which of 32 lanes."""
    return ir.Constant(ir.VectorType(_I32, count), list(range(first, first + step * count, step)))


def _products(builder: Any, x: Any, w: Any) -> Any:
    """Sums of neighbouring products: int16 ``[32]`` by int16 ``[32]`` -> int32 ``[16]``."""

    def half(first: int) -> Any:
        of_x, of_w = (builder.shuffle_vector(v, v, _part(first, 2, WIDTH)) for v in (x, w))
        return builder.mul(builder.sext(of_x, _SUMS), builder.sext(of_w, _SUMS))

    return builder.add(half(0), half(1))


def _x86_products(builder: Any, x: Any, w: Any) -> Any:
    """As ``_products``, by name: LLVM does not find the instruction in it."""
    pairs, sums = ir.VectorType(_I16, WIDTH), ir.VectorType(_I32, WIDTH // 2)
    multiply = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(sums, [pairs, pairs]), "llvm.x86.avx2.pmadd.wd"
    )
    low, high = (
        builder.call(multiply, [builder.shuffle_vector(v, v, _part(first, 1, WIDTH)) for v in (x, w)])
        for first in (0, WIDTH)
    )
    return builder.shuffle_vector(low, high, _part(0, 1, WIDTH))


def _wide_x86_products(builder: Any, x: Any, w: Any) -> Any:
    """As ``_products`` in one instruction; where the machine has AVX512-VNNI, LLVM makes one of it and the addition."""
    kind = ir.FunctionType(_SUMS, [_PAIRS, _PAIRS])
    multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.pmaddw.d.512")
    return builder.call(multiply, [x, w])


def products_of_this_machine() -> Callable[[Any, Any, Any], Any]:
    """What emits them: ``(builder, x, w)``, both int16 ``[32]``, gives int32 ``[16]``."""
    features = get_host_cpu_features()
    if features.get("avx512bw"):
        return _wide_x86_products
    return _x86_products if features.get("avx2") else _products


def _emit(builder: Any, rows: int, panels: int, arguments: list[Any]) -> None:
    """The loop over pairs of k, and what becomes of its sums."""
    x, x_stride, w, panel_stride, pairs, out, out_stride, begun, scale, row_scale = arguments
    products = products_of_this_machine()
    cells = [(r, p) for r in range(rows) for p in range(panels)]
    sums = {cell: cgutils.alloca_once(builder, _SUMS) for cell in cells}
    for variable in sums.values():
        builder.store(ir.Constant(_SUMS, [0] * WIDTH), variable)
    with cgutils.for_range(builder, pairs, intp=_I64) as loop:
        at_pair = builder.mul(loop.index, ir.Constant(_I64, 2 * WIDTH))
        of_w = []
        for p in range(panels):
            index = builder.add(at_pair, builder.mul(panel_stride, ir.Constant(_I64, p)))
            of_w.append(builder.sext(builder.load(at_element(builder, w, index, _NARROW, 1), align=1), _PAIRS))
        for r in range(rows):
            index = builder.add(builder.mul(x_stride, ir.Constant(_I64, r)), loop.index)
            pair = builder.load(at_element(builder, x, index, _I32, 4), align=4)
            of_x = builder.bitcast(spread(builder, pair, _SUMS), _PAIRS)
            for p in range(panels):
                added = builder.add(builder.load(sums[r, p]), products(builder, of_x, of_w[p]))
                builder.store(added, sums[r, p])
    for r, p in cells:
        index = builder.add(builder.mul(out_stride, ir.Constant(_I64, r)), ir.Constant(_I64, p * WIDTH))
        place = at_element(builder, out, index, _FLOATS, 4)
        _finish(builder, builder.load(sums[r, p]), place, begun, _factor(builder, r, p, scale, row_scale))


def _factor(builder: Any, r: int, p: int, scale: Any, row_scale: Any) -> Any:
    """What the whole numbers of a row in a panel are worth."""
    of_row = builder.load(at_element(builder, row_scale, ir.Constant(_I64, r), _ONE_FLOAT, 4), align=4)
    of_columns = floats_of(builder, scale, ir.Constant(_I64, p * WIDTH))
    return builder.fmul(spread(builder, of_row, _FLOATS), of_columns)


def _finish(builder: Any, sums: Any, place: Any, begun: Any, factor: Any) -> None:
    """To float32, and added to what is there where the sum had begun."""
    worth = cgutils.alloca_once(builder, _FLOATS)
    builder.store(builder.fmul(builder.sitofp(sums, _FLOATS), factor), worth)
    with builder.if_then(builder.icmp_signed("!=", begun, ir.Constant(_I64, 0))):
        builder.store(builder.fadd(builder.load(place, align=4), builder.load(worth)), worth)
    builder.store(builder.load(worth), place, align=4)


def _make(rows: int, panels: int) -> Any:
    return outlined_intrinsic(f"integer_tile_{rows}_{panels}", 10, lambda b, v: _emit(b, rows, panels, v))


_t1, _t2, _t3, _t4, _t5, _t6 = (_make(rows, 1) for rows in range(1, MAX_ROWS + 1))
_t14, _t23, _t32 = (_make(rows, panels) for rows, panels in PANELS.items())


@inline
def _tile(
    rows: int, panels: int, x: int, xs: int, w: int, ps: int, pairs: int, out: int, os: int, begun: int, scale: int,
    of_rows: int,
) -> None:  # fmt: skip
    if rows == 6:
        _t6(x, xs, w, ps, pairs, out, os, begun, scale, of_rows)
    elif rows == 5:
        _t5(x, xs, w, ps, pairs, out, os, begun, scale, of_rows)
    elif rows == 4:
        _t4(x, xs, w, ps, pairs, out, os, begun, scale, of_rows)
    elif rows == 3 and panels == 2:
        _t32(x, xs, w, ps, pairs, out, os, begun, scale, of_rows)
    elif rows == 3:
        _t3(x, xs, w, ps, pairs, out, os, begun, scale, of_rows)
    elif rows == 2 and panels == 3:
        _t23(x, xs, w, ps, pairs, out, os, begun, scale, of_rows)
    elif rows == 2:
        _t2(x, xs, w, ps, pairs, out, os, begun, scale, of_rows)
    elif panels == 4:
        _t14(x, xs, w, ps, pairs, out, os, begun, scale, of_rows)
    else:
        _t1(x, xs, w, ps, pairs, out, os, begun, scale, of_rows)


@inline
def integer_columns(
    rows: int, panels: int, x: int, xs: int, w: int, pairs: int, most: int, out: int, os: int, scale: int, of_rows: int
) -> None:
    """``out[r, 16 p + c] = of_rows[r] * scale[16 p + c] * sum over k of x[r, k] * w[p, k, c]``.

    Args:
        rows: 1 to 6.
        panels: any number of them.
        x: address of row 0, int16; rows lie ``xs`` pairs apart.
        w: address of panel 0, int8 ``[panels, pairs, 16, 2]``: of an output, two neighbouring k are neighbours.
        pairs: how many pairs of ``k`` there are.
        most: of how many pairs int32 can hold the sum of products. More are cut into even pieces.
        out: address of row 0, float32; rows lie ``os`` elements apart.
        scale: address of the float32 scales of the columns.
        of_rows: address of those of the rows.
    """
    pieces = (pairs + most - 1) // most
    piece = (pairs + pieces - 1) // pieces
    panel = 0
    while panel < panels:
        count = panels_at_once(rows, panels - panel)
        to, weights, columns = out + panel * WIDTH * 4, w + panel * pairs * 2 * WIDTH, scale + panel * WIDTH * 4
        first = 0
        while first < pairs:
            length, at = min(piece, pairs - first), weights + first * 2 * WIDTH
            _tile(rows, count, x + first * 4, xs, at, pairs * 2 * WIDTH, length, to, os, first, columns, of_rows)
            first += length
        panel += count
