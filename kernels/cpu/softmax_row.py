"""One row of 64 scores through the online softmax, in registers from the scores to whole numbers.

Written out as vector instructions: loop by loop, with its sums and largest elements between, a row takes five times
as long, and then as long as the matrix products around it.
"""

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic

from kernels.cpu.jit import inline
from kernels.cpu.tile import WIDTH, at_element, floats_of, fused_multiply_add, spread, totalled

KEYS = 64
LARGEST = 2**12 - 1  # what the largest of a row's weights becomes

_I16, _I32, _I64, _F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_VECTOR, _WHOLE = ir.VectorType(_F32, WIDTH), ir.VectorType(_I32, WIDTH)
_SHORTS = ir.VectorType(_I16, WIDTH)
_LOWEST = -87.0  # below it float32 has no normal number for the exponential
_ROUND = 1.5 * 2**23  # added to a small float32, leaves the nearest whole number in its last bits
# 2**f for |f| <= 0.5, off by 2.4e-6 at most: Taylor's series, as the result is rounded to 12 bits.
_SERIES = [math.log(2) ** n / math.factorial(n) for n in range(6)]


def _all(value: float) -> Any:
    return ir.Constant(_VECTOR, [value] * WIDTH)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    """The larger of two, b where either is NaN: one instruction."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _fold(builder: Any, vectors: list[Any], combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Vectors of 16 -> one number, by halves."""
    while len(vectors) > 1:
        half = len(vectors) // 2
        vectors = [combine(builder, a, b) for a, b in zip(vectors[:half], vectors[half:], strict=True)]
    return totalled(builder, vectors[0], combine)


def _exponential(builder: Any, x: Any) -> Any:
    """e**x for x <= 0; e**-87 below that; NaN for NaN. Off by 1e-5 of it at most."""
    fma = fused_multiply_add(builder.module)
    x = _larger(builder, _all(_LOWEST), x)
    whole = builder.call(fma, [x, _all(math.log2(math.e)), _all(_ROUND)])
    rest = builder.call(fma, [x, _all(math.log2(math.e)), builder.fsub(_all(_ROUND), whole)])
    series = _all(_SERIES[-1])
    for coefficient in reversed(_SERIES[:-1]):
        series = builder.call(fma, [series, rest, _all(coefficient)])
    exponent = builder.shl(builder.bitcast(whole, _WHOLE), ir.Constant(_WHOLE, [23] * WIDTH))
    power = builder.bitcast(builder.add(exponent, ir.Constant(_WHOLE, [127 << 23] * WIDTH)), _VECTOR)
    return builder.fmul(series, power)


def _seen(builder: Any, scores: list[Any], first: Any, end: Any) -> list[Any]:
    """The scores, minus infinity outside first to before end."""

    low, high = (spread(builder, builder.trunc(word, _I32), _WHOLE) for word in (first, end))
    kept = []
    for n, vector in enumerate(scores):
        lanes = ir.Constant(_WHOLE, list(range(n * WIDTH, (n + 1) * WIDTH)))
        within = builder.and_(builder.icmp_signed(">=", lanes, low), builder.icmp_signed("<", lanes, high))
        kept.append(builder.select(within, vector, _all(-math.inf)))
    return kept


def _emit(builder: Any, arguments: list[Any]) -> Any:
    scores, worth, first, end, largest, total, rounded, of_row = arguments
    count = KEYS // WIDTH
    add: Callable[[Any, Any, Any], Any] = lambda b, x, y: b.fadd(x, y)  # noqa: E731

    def at(base: Any, kind: Any = _F32) -> Any:
        return builder.inttoptr(base, ir.PointerType(kind))

    loaded = [floats_of(builder, scores, ir.Constant(_I64, n * WIDTH)) for n in range(count)]
    seen = _seen(builder, loaded, first, end)
    before = builder.load(at(largest), align=4)
    top = _larger(builder, _fold(builder, seen, _larger), before)
    factor = builder.extract_element(
        _exponential(builder, spread(builder, builder.fsub(before, top), _VECTOR)), ir.Constant(_I32, 0)
    )
    weights = [_exponential(builder, builder.fsub(vector, spread(builder, top, _VECTOR))) for vector in seen]
    sum_before = builder.fmul(builder.load(at(total), align=4), factor)
    builder.store(builder.fadd(sum_before, _fold(builder, weights, add)), at(total), align=4)
    builder.store(top, at(largest), align=4)
    products = [
        builder.fmul(vector, floats_of(builder, worth, ir.Constant(_I64, n * WIDTH)))
        for n, vector in enumerate(weights)
    ]
    # Not below the smallest normal number, by which one may still divide: such values come to nothing.
    most = _larger(builder, _fold(builder, products, _larger), ir.Constant(_F32, 2.0**-100))
    builder.store(builder.fmul(most, ir.Constant(_F32, 1 / LARGEST)), at(of_row), align=4)
    to_whole = spread(builder, builder.fdiv(ir.Constant(_F32, float(LARGEST)), most), _VECTOR)
    for n, vector in enumerate(products):
        nearest = builder.call(fused_multiply_add(builder.module), [vector, to_whole, _all(0.5)])
        whole = builder.trunc(builder.fptosi(nearest, _WHOLE), _SHORTS)
        builder.store(whole, at_element(builder, rounded, ir.Constant(_I64, n * WIDTH), _SHORTS, 2), align=2)
    return factor


def _function(module: Any) -> Any:
    """The row as a function of its own in a module."""
    if "softmax_row" in module.globals:
        return module.globals["softmax_row"]
    function = ir.Function(module, ir.FunctionType(_F32, [_I64] * 8), "softmax_row")
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    builder.ret(_emit(builder, list(function.args)))
    return function


def _typed(  # numba reads the number of parameters from the signature: those of softmax_row
    _c: Any, _1: Any, _2: Any, _3: Any, _4: Any, _5: Any, _6: Any, _7: Any, _8: Any
) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: list[Any]) -> Any:
        return builder.call(_function(builder.module), arguments)

    return types.float32(*[types.int64] * 8), generate


_row: Any = intrinsic(_typed)


@inline
def softmax_row(
    scores: int, worth: int, first: int, end: int, largest: int, total: int, rounded: int, of_row: int
) -> Any:
    """Weigh 64 keys by their scores.

    Args:
        scores: address of float32 ``[64]``.
        worth: address of float32 ``[64]``, by which each weight is multiplied before it is rounded; none negative.
        first: of the keys that the row sees, at least one.
        end: behind the last of them.
        largest: address of the row's largest score so far; brought up to date.
        total: address of the sum of its weights so far; brought up to date.
        rounded: address of int16 ``[64]``, the weights: at most ``LARGEST``, 0 for what the row does not see.
        of_row: address of a float32, what a step of ``rounded`` is worth.

    Returns:
        The float32 by which what the row has summed before is to be multiplied. A NaN among the scores makes total
        NaN.
    """
    return _row(scores, worth, first, end, largest, total, rounded, of_row)
