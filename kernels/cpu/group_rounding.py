"""Float32 numbers -> int8 with a step for each 64, as ``kernels.cpu.byte_tile`` takes them."""

import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.cpu.byte_tile import GROUP, OFFSET
from kernels.cpu.jit import inline
from kernels.cpu.memory import copy, fill
from kernels.cpu.rounding import MOST, NEAREST, NOT_FINITE, SIGN
from kernels.cpu.tile import WIDTH, at_element, floats_of, fused_multiply_add, spread, totalled

LARGEST = 127

_I8, _I32, _I64, _F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
_VECTOR, _WHOLE, _NARROW = (ir.VectorType(kind, WIDTH) for kind in (_F32, _I32, _I8))


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_signed(">", a, b), a, b)


def _sum(builder: Any, a: Any, b: Any) -> Any:
    return builder.add(a, b)


def _whole(value: int) -> Any:
    return ir.Constant(_WHOLE, [value] * WIDTH)


def _step_and_factor(builder: Any, top: Any) -> tuple[Any, Any]:
    """From the bits of the largest of a group: what a step is worth, and how many of them are 1."""
    largest, most = ir.Constant(_F32, float(LARGEST)), ir.Constant(_F32, float(MOST))
    factor = builder.fdiv(largest, builder.bitcast(top, _F32))
    # Of zeros it is infinite, of what is not finite zero or NaN: the step makes NaN of whatever that gives.
    factor = builder.select(builder.fcmp_ordered("<", factor, most), factor, most)
    step = builder.fdiv(ir.Constant(_F32, 1.0), factor)
    spoilt = builder.icmp_signed(">=", top, ir.Constant(_I32, NOT_FINITE))
    return builder.select(spoilt, ir.Constant(_F32, math.nan), step), factor


def _emit(builder: Any, arguments: list[Any]) -> Any:
    """``groups`` of 64, one after another; of_groups is laid out for ``all_groups``."""
    x, groups, to, of_groups, all_groups = arguments
    fma = fused_multiply_add(builder.module)
    nearest = ir.Constant(_VECTOR, [NEAREST] * WIDTH)
    with cgutils.for_range(builder, groups, intp=_I64) as loop:
        begin = builder.mul(loop.index, ir.Constant(_I64, GROUP))
        places = [builder.add(begin, ir.Constant(_I64, at)) for at in range(0, GROUP, WIDTH)]
        vectors = [floats_of(builder, x, place) for place in places]
        tops = [builder.and_(builder.bitcast(vector, _WHOLE), _whole(int(SIGN))) for vector in vectors]
        top = _larger(builder, _larger(builder, tops[0], tops[1]), _larger(builder, tops[2], tops[3]))
        step, factor = _step_and_factor(builder, totalled(builder, top, _larger))
        factors = spread(builder, factor, _VECTOR)
        total = _whole(0)
        for vector, place in zip(vectors, places, strict=True):
            # The last bits of the sum hold the whole number, in two's complement.
            bits = builder.bitcast(builder.call(fma, [vector, factors, nearest]), _WHOLE)
            number = builder.trunc(bits, _NARROW)
            total = builder.add(total, builder.sext(number, _WHOLE))
            builder.store(number, at_element(builder, to, place, _NARROW, 1), align=1)
        offset = builder.mul(totalled(builder, total, _sum), ir.Constant(_I32, -OFFSET))
        builder.store(step, at_element(builder, of_groups, loop.index, _F32, 4), align=4)
        behind = builder.add(loop.index, all_groups)
        builder.store(offset, at_element(builder, of_groups, behind, _I32, 4), align=4)
    return ir.Constant(_I64, 0)


def _typed(_c: Any, _1: Any, _2: Any, _3: Any, _4: Any, _5: Any) -> Any:
    # numba reads the number of parameters from the signature: those of _emit.
    def generate(_target: Any, builder: Any, _signature: Any, arguments: list[Any]) -> Any:
        return _emit(builder, arguments)

    return types.int64(*[types.int64] * 5), generate


_round: Any = intrinsic(_typed)


@inline
def round_groups(x: int, depth: int, to: int, of_groups: int, spare: int) -> None:
    """Round float32 ``[depth]`` at x, in groups of 64, the last filled up with zeros.

    Args:
        x: address.
        depth: how many there are.
        to: address of int8 ``[groups, 64]``. The largest of a group becomes 127; each is off by half a step at most.
        of_groups: address of ``[2, groups]``: float32, what a step is worth, NaN where an element is not finite; then
            int32, what ``kernels.cpu.byte_tile`` begins its sums with.
        spare: address of float32 ``[64]`` to work with.
    """
    groups, whole = (depth + GROUP - 1) // GROUP, depth // GROUP
    _round(x, whole, to, of_groups, groups)
    if whole < groups:
        fill(spare, GROUP, np.float32(0))
        copy(x + whole * GROUP * 4, depth - whole * GROUP, spare)
        _round(spare, 1, to + whole * GROUP, of_groups + whole * 4, groups)
