"""The arithmetic of ``kernels.cpu.integer_softmax`` on vectors of 16: scores, powers of two, weights, a row's state."""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from kernels.cpu.emitting import load
from kernels.cpu.tile import WIDTH, fused_multiply_add, spread
from kernels.cpu.vectors import ROUND, VECTOR, WHOLE, all_of, larger, series_by_power, whole_of

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_LOWEST = -125.0  # below it float32 has no normal number for the power of two
_FINE = 21  # a weight of 1 is 2**21 fine whole numbers
_MOST = 1e38  # by which weights may be multiplied: so small that it takes more, they come to nothing
_FURTHEST = 60.0  # exponent at which a hyperbolic tangent is 1
# 2**f for |f| <= 0.5, off by 2.6e-6 of it at most, a twentieth of half a step of the largest weight: of all polynomials
# of this degree the best, found by Remez's exchange of extremes. Taylor's series needs a power more for as much.
_SERIES = (0.99999926, 0.69312181, 0.24024745, 0.05591786, 0.0095701)
_SIGN = 0x7FFFFFFF  # all bits but it
LEAST = -1e30  # the reference of a row that has seen no key
UNIT = 0x4B400000  # the bits of ROUND


def larger_bits(builder: Any, a: Any, b: Any) -> Any:
    """Of numbers that are not negative; NaN is the largest, whatever its sign."""
    return builder.select(builder.icmp_unsigned(">", a, b), a, b)


def added(builder: Any, a: Any, b: Any) -> Any:
    """The sum of whole numbers."""
    return builder.add(a, b)


def _power(builder: Any, x: Any, shift: int = 0) -> Any:
    """2**(x + shift), 2**(shift - 125) where x is below -125, NaN for NaN."""
    x = larger(builder, all_of(_LOWEST), x)
    whole = builder.fadd(x, all_of(ROUND + shift))
    rest = builder.fsub(x, builder.fsub(whole, all_of(ROUND + shift)))
    return series_by_power(builder, _SERIES, rest, whole)


def _whole_power(builder: Any, x: Any) -> Any:
    """2**x of whole x <= 0, exactly; 0 below -126."""
    x = larger(builder, all_of(-127.0), x)
    exponent = builder.add(builder.bitcast(builder.fadd(x, all_of(ROUND)), WHOLE), whole_of(127))
    return builder.bitcast(builder.shl(exponent, whole_of(23)), VECTOR)


def rounded_up(builder: Any, x: Any) -> Any:
    """The least whole numbers that are not smaller."""
    name = f"llvm.ceil.v{WIDTH}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(VECTOR, [VECTOR]), name), [x])


def score(builder: Any, raw: Any, step: Any, factor: Any, cap: Any) -> Any:
    """A score, in base 2 where it is capped, else still to be multiplied by ``factor``.

    cap: for scores that are capped, ``2 / cap`` and ``cap``, both in base 2, else None.
    """
    score = builder.fmul(builder.sitofp(raw, VECTOR), step)
    if cap is None:
        return score
    score = builder.fmul(score, factor)
    inverse, capped = cap
    exponent = builder.fmul(score, inverse)
    exponent = larger(builder, all_of(-_FURTHEST), exponent)
    exponent = builder.select(builder.fcmp_ordered(">", exponent, all_of(_FURTHEST)), all_of(_FURTHEST), exponent)
    # tanh(x) = 1 - 2 / (e**2x + 1)
    below = builder.fdiv(all_of(2.0), builder.fadd(_power(builder, exponent), all_of(1.0)))
    return builder.fmul(capped, builder.fsub(all_of(1.0), below))


def constants_at(builder: Any, address: Any) -> list[Any]:
    """Four numbers at an address, each in all lanes: those that ``put_constants`` puts there."""
    return [
        spread(builder, load(builder, builder.add(address, ir.Constant(_I64, 4 * n)), _F32), VECTOR) for n in range(4)
    ]


def finish(builder: Any, before: Any, tile: Any, constants: list[Any]) -> tuple[Any, list[Any]]:
    """Bring the rows' state up to date.

    Args:
        before: the rows' reference and total.
        tile: its reference, the whole total of its weights, fine, and the bits of the largest.

    Returns:
        What weights are multiplied by, and what is kept: reference, total, what a whole product is worth, and what sums
        are multiplied by.
    """
    (reference, total), (tile_reference, whole_total, top) = before, tile
    after = larger(builder, reference, tile_reference)
    old = _whole_power(builder, builder.fsub(reference, after))
    new = _whole_power(builder, builder.fsub(tile_reference, after))
    heaviest = builder.bitcast(builder.and_(top, whole_of(_SIGN)), VECTOR)
    multiplier = builder.fdiv(constants[0], heaviest)
    multiplier = builder.select(builder.fcmp_ordered("<", multiplier, all_of(_MOST)), multiplier, all_of(_MOST))
    coarse = builder.fmul(new, all_of(2.0**-_FINE))
    worth = builder.fmul(builder.fmul(heaviest, constants[1]), coarse)
    tile_total = builder.fmul(builder.sitofp(whole_total, VECTOR), coarse)
    added = builder.call(fused_multiply_add(builder.module), [total, old, tile_total])
    return multiplier, [after, added, worth, old]


def nearest(builder: Any, x: Any, factor: Any) -> Any:
    """``x * factor`` to the nearest whole number, as bits of ``ROUND`` and it; 16 of them are the number itself."""
    fma = fused_multiply_add(builder.module)
    return builder.bitcast(builder.call(fma, [x, factor, all_of(ROUND)]), WHOLE)


def reference_of(builder: Any, highest: Any, factor: Any, cap: Any) -> Any:
    """A whole number that no score exceeds, but for a rounding; of a row that sees none the least there is."""
    if cap is None:
        # Of a query of zeros and no key that is NaN, which would stay.
        highest = larger(builder, builder.fmul(highest, factor), all_of(LEAST))
    return rounded_up(builder, highest)


def weigh(
    builder: Any, score: Any, factor: Any, reference: Any, step: Any, within: Any, cap: Any
) -> tuple[Any, Any, Any]:  # fmt: skip
    """What a weight adds to the total, it times its value's step, and the bits of that, all in fine whole numbers.

    within: None where all are. The total has UNIT too much for each weight.
    """
    if cap is None:
        below = builder.call(fused_multiply_add(builder.module), [score, factor, builder.fneg(reference)])
    else:
        below = builder.fsub(score, reference)
    weight = _power(builder, below, _FINE)
    heavy = builder.fmul(weight, step)
    if within is not None:
        weight, heavy = (builder.select(within, x, all_of(0.0)) for x in (weight, heavy))
    fine = builder.bitcast(builder.fadd(weight, all_of(ROUND)), WHOLE)
    return fine, heavy, builder.bitcast(heavy, WHOLE)
