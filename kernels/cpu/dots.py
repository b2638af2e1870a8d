"""Products of a few rows with each of a run of vectors, written out as vector instructions.

For one to four rows (the query heads that share a key head): a vector is loaded once for all of them. Turning the
vectors into panels for ``kernels.cpu.tile`` would cost more than it saves for so few.
"""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.cpu.jit import inline
from kernels.cpu.tile import WIDTH, at_element, empty_sums, floats_of, fused_multiply_add, totalled

MOST_ROWS = 4

_I64, _F32 = ir.IntType(64), ir.FloatType()


def _add(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b)


def _emit(builder: Any, rows: int, arguments: list[Any]) -> None:
    x, y, size, count, out, stride = arguments
    fma = fused_multiply_add(builder.module)
    with cgutils.for_range(builder, count, intp=_I64) as vectors:
        sums = empty_sums(builder, range(rows))
        begin = builder.mul(vectors.index, size)
        with cgutils.for_range(builder, builder.udiv(size, ir.Constant(_I64, WIDTH)), intp=_I64) as pieces:
            at = builder.mul(pieces.index, ir.Constant(_I64, WIDTH))
            of_y = floats_of(builder, y, builder.add(begin, at))
            for row in range(rows):
                index = builder.add(builder.mul(size, ir.Constant(_I64, row)), at)
                of_x = floats_of(builder, x, index)
                builder.store(builder.call(fma, [of_x, of_y, builder.load(sums[row])]), sums[row])
        for row in range(rows):
            index = builder.add(builder.mul(stride, ir.Constant(_I64, row)), vectors.index)
            total = totalled(builder, builder.load(sums[row]), _add)
            builder.store(total, at_element(builder, out, index, _F32, 4), align=4)


def _make(rows: int) -> Any:
    # numba reads the number of parameters from the signature: those of _emit, in its order.
    def typed(_c: Any, _1: Any, _2: Any, _3: Any, _4: Any, _5: Any, _6: Any) -> Any:
        def generate(_target: Any, builder: Any, _signature: Any, arguments: list[Any]) -> Any:
            _emit(builder, rows, arguments)
            return ir.Constant(_I64, 0)

        return types.int64(*[types.int64] * 6), generate

    return intrinsic(typed)


_d1, _d2, _d3, _d4 = (_make(rows) for rows in range(1, MOST_ROWS + 1))


@inline
def dots(rows: int, x: int, y: int, size: int, count: int, out: int, stride: int) -> None:
    """``out[r * stride + j] = x[r] @ y[j]``, all float32, for ``count`` vectors of ``size``, a multiple of 16.

    Each product is added up in an order that size alone decides. x, y and out are addresses; rows is 1 to 4.
    """
    if rows == 4:
        _d4(x, y, size, count, out, stride)
    elif rows == 3:
        _d3(x, y, size, count, out, stride)
    elif rows == 2:
        _d2(x, y, size, count, out, stride)
    else:
        _d1(x, y, size, count, out, stride)
