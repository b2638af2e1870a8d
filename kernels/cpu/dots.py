"""A few rows by a run of vectors, both ways, written out as vector instructions: for attention's single rows.

For one to four rows (the query heads that share a key head): a vector is loaded once for all of them. Turning the
vectors into panels for ``kernels.cpu.tile`` would cost more than it saves for so few.

Either product asks for memory that is needed later, as much of it as it reads, a line for a line. Attention does
little with each byte of the pool, so it goes as fast as bytes come; the processor's own reading ahead ends with each
page and begins anew with each block, and asking for many lines at once fills the queue that the product's own reads
have to pass.
"""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numba.core import cgutils

from kernels.cpu.emitting import bring_near
from kernels.cpu.jit import inline
from kernels.cpu.outline import outlined_intrinsic
from kernels.cpu.tile import (
    WIDTH,
    at_element,
    emit_tile,
    empty_sums,
    floats_of,
    fused_multiply_add,
    totalled,
)

MOST_ROWS = 4

_I64, _F32 = ir.IntType(64), ir.FloatType()


def _add(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b)


def _ahead(builder: Any, ahead: Any, itemsize: Any, element: Any) -> None:
    bring_near(builder, builder.add(ahead, builder.mul(element, itemsize)))


def _emit_dots(builder: Any, rows: int, arguments: list[Any]) -> None:
    x, y, size, count, out, stride, ahead, itemsize = arguments
    fma = fused_multiply_add(builder.module)
    with cgutils.for_range(builder, count, intp=_I64) as vectors:
        sums = empty_sums(builder, range(rows))
        begin = builder.mul(vectors.index, size)
        with cgutils.for_range(builder, builder.udiv(size, ir.Constant(_I64, WIDTH)), intp=_I64) as pieces:
            at = builder.mul(pieces.index, ir.Constant(_I64, WIDTH))
            of_y = floats_of(builder, y, builder.add(begin, at))
            _ahead(builder, ahead, itemsize, builder.add(begin, at))
            for row in range(rows):
                index = builder.add(builder.mul(size, ir.Constant(_I64, row)), at)
                of_x = floats_of(builder, x, index)
                builder.store(builder.call(fma, [of_x, of_y, builder.load(sums[row])]), sums[row])
        for row in range(rows):
            index = builder.add(builder.mul(stride, ir.Constant(_I64, row)), vectors.index)
            total = totalled(builder, builder.load(sums[row]), _add)
            builder.store(total, at_element(builder, out, index, _F32, 4), align=4)


def _emit_sums(builder: Any, rows: int, pieces: int, arguments: list[Any]) -> None:
    x, stride, y, size, count, out, ahead, itemsize = arguments
    width, going_on = ir.Constant(_I64, WIDTH), ir.Constant(_I64, 1)

    def fetch(turn: Any) -> None:
        for piece in range(pieces):
            at = builder.add(builder.mul(size, turn), ir.Constant(_I64, piece * WIDTH))
            _ahead(builder, ahead, itemsize, at)

    emit_tile(builder, rows, pieces, [x, stride, y, size, width, count, out, size, going_on], fetch)


def _pieces_at_once(rows: int) -> int:
    """Pieces of a vector whose sums, for so many rows, fit the registers: of 32, or of AVX2's 16 that hold half."""
    return 4 if get_host_cpu_features().get("avx512f") else {1: 4, 2: 2, 3: 2, 4: 1}[rows]


def _dots(rows: int) -> Any:
    return outlined_intrinsic(f"dots_{rows}", 8, lambda b, v: _emit_dots(b, rows, v))


def _sums(rows: int, pieces: int) -> Any:
    return outlined_intrinsic(f"weighted_sums_{rows}_{pieces}", 8, lambda b, v: _emit_sums(b, rows, pieces, v))


_P1, _P2, _P3, _P4 = (_pieces_at_once(rows) for rows in range(1, MOST_ROWS + 1))
_d1, _d2, _d3, _d4 = (_dots(rows) for rows in range(1, MOST_ROWS + 1))
_s1, _s2, _s3, _s4 = (_sums(rows, 1) for rows in range(1, MOST_ROWS + 1))
_w1, _w2, _w3, _w4 = _sums(1, _P1), _sums(2, _P2), _sums(3, _P3), _sums(4, _P4)


@inline
def dots(
    rows: int, x: int, y: int, size: int, count: int, out: int, stride: int, ahead: int, itemsize: int
) -> None:  # fmt: skip
    """``out[r * stride + j] = x[r] @ y[j]``, all float32, for ``count`` vectors of ``size``, a multiple of 16.

    Each product is added up in an order that size alone decides. x, y and out are addresses; rows is 1 to 4.
    Meanwhile as many elements, of ``itemsize`` bytes, are brought near from address ``ahead`` on, whatever lies there.
    """
    if rows == 4:
        _d4(x, y, size, count, out, stride, ahead, itemsize)
    elif rows == 3:
        _d3(x, y, size, count, out, stride, ahead, itemsize)
    elif rows == 2:
        _d2(x, y, size, count, out, stride, ahead, itemsize)
    else:
        _d1(x, y, size, count, out, stride, ahead, itemsize)


@inline
def weighted_sums(
    rows: int, x: int, stride: int, y: int, size: int, count: int, out: int, ahead: int, itemsize: int
) -> None:  # fmt: skip
    """``out[r] += sum over j of x[r * stride + j] * y[j]``, one after the other, sizes and memory as in ``dots``.

    Results lie side by side, ``size`` elements each.
    """
    at_once = _P4 if rows == 4 else _P3 if rows == 3 else _P2 if rows == 2 else _P1
    piece, pieces = 0, size // WIDTH
    while piece < pieces:
        wide = pieces - piece >= at_once
        of_y, to, of_ahead = y + piece * WIDTH * 4, out + piece * WIDTH * 4, ahead + piece * WIDTH * itemsize
        if rows == 4 and wide:
            _w4(x, stride, of_y, size, count, to, of_ahead, itemsize)
        elif rows == 4:
            _s4(x, stride, of_y, size, count, to, of_ahead, itemsize)
        elif rows == 3 and wide:
            _w3(x, stride, of_y, size, count, to, of_ahead, itemsize)
        elif rows == 3:
            _s3(x, stride, of_y, size, count, to, of_ahead, itemsize)
        elif rows == 2 and wide:
            _w2(x, stride, of_y, size, count, to, of_ahead, itemsize)
        elif rows == 2:
            _s2(x, stride, of_y, size, count, to, of_ahead, itemsize)
        elif wide:
            _w1(x, stride, of_y, size, count, to, of_ahead, itemsize)
        else:
            _s1(x, stride, of_y, size, count, to, of_ahead, itemsize)
        piece += at_once if wide else 1
