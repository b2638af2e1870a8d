"""Float32 numbers -> int16 and what one of them is worth, so that whole numbers can be multiplied in their place."""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.cpu.jit import inline
from kernels.cpu.memory import float_of_bits, floats, ints, shorts
from kernels.cpu.tile import WIDTH, at_element, floats_of, fused_multiply_add, spread, totalled

NOT_FINITE = 0x7F800000  # bits of infinity; those of NaN are above, those of every other positive number below
SIGN = 0x7FFFFFFF  # all bits but it
MOST = np.float32(1e38)  # by which a number may be multiplied: one so small that it takes more comes to nothing
NEAREST = 1.5 * 2**23  # added to a small float32, leaves the nearest whole number in its last bits

_I16, _I32, _I64, _F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_VECTOR, _WHOLE, _SHORTS = (ir.VectorType(kind, WIDTH) for kind in (_F32, _I32, _I16))


def _top(builder: Any, arguments: list[Any]) -> Any:
    """Bits of the largest of ``16 * vectors`` numbers without their signs."""
    x, vectors = arguments
    most = cgutils.alloca_once(builder, _WHOLE)
    builder.store(ir.Constant(_WHOLE, [0] * WIDTH), most)

    def larger(builder: Any, a: Any, b: Any) -> Any:
        return builder.select(builder.icmp_signed(">", a, b), a, b)

    with cgutils.for_range(builder, vectors, intp=_I64) as loop:
        vector = floats_of(builder, x, builder.mul(loop.index, ir.Constant(_I64, WIDTH)))
        bits = builder.and_(builder.bitcast(vector, _WHOLE), ir.Constant(_WHOLE, [SIGN] * WIDTH))
        builder.store(larger(builder, builder.load(most), bits), most)
    return totalled(builder, builder.load(most), larger)


def _round(builder: Any, arguments: list[Any]) -> Any:
    """``16 * vectors`` numbers times a factor, to the nearest whole numbers."""
    x, vectors, factor, to = arguments
    fma = fused_multiply_add(builder.module)
    factors, nearest = spread(builder, factor, _VECTOR), ir.Constant(_VECTOR, [NEAREST] * WIDTH)
    with cgutils.for_range(builder, vectors, intp=_I64) as loop:
        at = builder.mul(loop.index, ir.Constant(_I64, WIDTH))
        whole = builder.call(fma, [floats_of(builder, x, at), factors, nearest])
        # The last bits hold it as a whole number, in two's complement.
        narrow = builder.trunc(builder.bitcast(whole, _WHOLE), _SHORTS)
        builder.store(narrow, at_element(builder, to, at, _SHORTS, 2), align=2)
    return ir.Constant(_I64, 0)


def _typed_top(_c: Any, _1: Any, _2: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: list[Any]) -> Any:
        return _top(builder, arguments)

    return types.int32(types.int64, types.int64), generate


def _typed_round(_c: Any, _1: Any, _2: Any, _3: Any, _4: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: list[Any]) -> Any:
        return _round(builder, arguments)

    return types.int64(types.int64, types.int64, types.float32, types.int64), generate


_top_bits: Any = intrinsic(_typed_top)
_round_vectors: Any = intrinsic(_typed_round)


@inline
def round_run(x: int, count: int, largest: int, to: int) -> Any:
    """Round float32 ``[count]`` at x to int16 at ``to``, and a zero more where count is odd.

    The largest becomes ``largest``; each is off by half a step at the most.

    Returns:
        What a step is worth, float32: NaN where an element is not finite, and then all are 0.
    """
    vectors = count // WIDTH
    bits, values, rounded = ints(x, count), floats(x, count), shorts(to, count + count % 2)
    # As whole numbers: of floats, the largest with a NaN among them depends on their order.
    top = _top_bits(x, vectors)
    for i in range(vectors * WIDTH, count):
        top = max(top, bits[i] & np.int32(SIGN))
    if count % 2 == 1:
        rounded[count] = 0
    if top == 0 or top >= NOT_FINITE:
        for i in range(count):
            rounded[i] = 0
        return np.float32(0.0) if top == 0 else np.float32(np.nan)
    factor = min(MOST, np.float32(largest) / float_of_bits(np.int32(top)))
    _round_vectors(x, vectors, factor, to)
    for i in range(vectors * WIDTH, count):
        rounded[i] = np.int16(np.int32(np.rint(values[i] * factor)))
    return np.float32(1.0) / factor
