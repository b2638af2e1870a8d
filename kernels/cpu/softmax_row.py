"""One row of 64 scores through the online softmax, in registers from the scores to the weights.

Written out as vector instructions: loop by loop, with its sums and largest elements between, a row takes five times
as long, and then as long as the matrix products around it.

Scores are exponentiated against the largest seen so far; when a larger one comes, what was summed before is scaled
down (Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867, section 3).
"""

import math
import struct
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic

from kernels.cpu.jit import inline
from kernels.cpu.outline import outlined
from kernels.cpu.tile import WIDTH, at_element, floats_of, fused_multiply_add, spread, totalled
from kernels.cpu.vectors import ROUND, VECTOR, WHOLE, all_of, larger, whole_of

KEYS = 64

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_LOWEST = -87.0  # below it float32 has no normal number for the exponential
_LOG2_E = struct.unpack("f", struct.pack("f", math.log2(math.e)))[0]
_LOG2_E_REST = math.log2(math.e) - _LOG2_E  # what float32 leaves of it
# 2**f for |f| <= 0.5: Taylor's series, off by 5e-9 at most.
_SERIES = [math.log(2) ** n / math.factorial(n) for n in range(8)]


def _fold(builder: Any, vectors: list[Any], combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Vectors of 16 -> one number, by halves."""
    while len(vectors) > 1:
        half = len(vectors) // 2
        vectors = [combine(builder, a, b) for a, b in zip(vectors[:half], vectors[half:], strict=True)]
    return totalled(builder, vectors[0], combine)


def _exponential(builder: Any, x: Any) -> Any:
    """e**x for x <= 0; e**-87 below that; NaN for NaN. Relative error below 3e-7."""
    fma = fused_multiply_add(builder.module)
    x = larger(builder, all_of(_LOWEST), x)
    whole = builder.call(fma, [x, all_of(_LOG2_E), all_of(ROUND)])
    rest = builder.call(fma, [x, all_of(_LOG2_E), builder.fsub(all_of(ROUND), whole)])
    rest = builder.call(fma, [x, all_of(_LOG2_E_REST), rest])
    series = all_of(_SERIES[-1])
    for coefficient in reversed(_SERIES[:-1]):
        series = builder.call(fma, [series, rest, all_of(coefficient)])
    exponent = builder.shl(builder.bitcast(whole, WHOLE), whole_of(23))
    power = builder.bitcast(builder.add(exponent, whole_of(127 << 23)), VECTOR)
    return builder.fmul(series, power)  # which stays NaN, whatever bits of it the exponent would have met


def _within(builder: Any, first: Any, end: Any) -> list[Any]:
    """Which lanes lie from first to before end."""
    low, high = (spread(builder, builder.trunc(word, _I32), WHOLE) for word in (first, end))
    lanes = [ir.Constant(WHOLE, list(range(at, at + WIDTH))) for at in range(0, KEYS, WIDTH)]
    return [builder.and_(builder.icmp_signed(">=", n, low), builder.icmp_signed("<", n, high)) for n in lanes]


def _add(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b)


def _emit(builder: Any, arguments: list[Any]) -> Any:
    scores, first, end, largest_at, total_at = arguments
    largest, total = (builder.inttoptr(address, ir.PointerType(_F32)) for address in (largest_at, total_at))
    within = _within(builder, first, end)
    seen = [
        builder.select(inside, floats_of(builder, scores, ir.Constant(_I64, n * WIDTH)), all_of(-math.inf))
        for n, inside in enumerate(within)
    ]
    before = builder.load(largest, align=4)
    top = larger(builder, _fold(builder, seen, larger), before)
    factor = builder.extract_element(
        _exponential(builder, spread(builder, builder.fsub(before, top), VECTOR)), ir.Constant(_I32, 0)
    )
    tops = spread(builder, top, VECTOR)
    weights = [
        builder.select(inside, _exponential(builder, builder.fsub(vector, tops)), all_of(0.0))
        for vector, inside in zip(seen, within, strict=True)
    ]
    sum_before = builder.fmul(builder.load(total, align=4), factor)
    builder.store(builder.fadd(sum_before, _fold(builder, weights, _add)), total, align=4)
    builder.store(top, largest, align=4)
    for n, vector in enumerate(weights):
        builder.store(vector, at_element(builder, scores, ir.Constant(_I64, n * WIDTH), VECTOR, 4), align=4)
    return factor


def _typed(_c: Any, _1: Any, _2: Any, _3: Any, _4: Any, _5: Any) -> Any:
    # numba reads the number of parameters from the signature: those of softmax_row.
    def generate(_target: Any, builder: Any, _signature: Any, arguments: list[Any]) -> Any:
        return builder.call(outlined(builder.module, "softmax_row", 5, _F32, _emit), arguments)

    return types.float32(*[types.int64] * 5), generate


_row: Any = intrinsic(_typed)


@inline
def softmax_row(scores: int, first: int, end: int, largest: int, total: int) -> Any:
    """Turn a row's scores of 64 keys into their weights, in place.

    Args:
        scores: address of float32 ``[64]``; 0 afterwards for what the row does not see.
        first: of the keys that the row sees, at least one.
        end: behind the last of them.
        largest: address of the row's largest score so far; brought up to date.
        total: address of the sum of its weights so far; brought up to date.

    Returns:
        The float32 by which what the row has summed before is to be multiplied. A NaN among the scores makes total
        NaN.
    """
    return _row(scores, first, end, largest, total)
