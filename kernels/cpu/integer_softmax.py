"""From whole-number scores to whole-number weights, for a tile of up to 64 keys.

A tile stands for itself: its weights are powers of two of what a score lies below its largest, rounded up to a whole
number; times the steps of the values they are rounded to whole numbers by the largest of them. Tiles then add up as in
the online softmax (Milakov and Gimelshein, arXiv:1805.02867, section 3), but what they are scaled by is a power of two,
which rounds nothing: the sums depend on the order of the tiles alone, not on which of them were seen together.

Both functions do the same to each score, in the same order, and what they sum over the keys of a tile are whole
numbers or largest elements: they give the same bits.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from kernels.cpu.jit import inline
from kernels.cpu.memory import floats
from kernels.cpu.outline import outlined_intrinsic
from kernels.cpu.pair_tiles import LINE, load, store
from kernels.cpu.tile import WIDTH, fused_multiply_add, spread, totalled

KEYS = 64
LOG2_E = math.log2(math.e)
LEAST = -1e30  # the reference of a row that has seen no key

_I16, _I32, _I64, _F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_VECTOR, _WHOLE, _SHORTS = (ir.VectorType(kind, WIDTH) for kind in (_F32, _I32, _I16))
_ROUND = 1.5 * 2**23  # added to a small float32, leaves the nearest whole number in its last bits
_LOWEST = -125.0  # below it float32 has no normal number for the power of two
_FINE = 2.0**21  # whole numbers of which a weight of 1 has so many
_MOST = 1e38  # by which weights may be multiplied: so small that it takes more, they come to nothing
_FURTHEST = 60.0  # exponent at which a hyperbolic tangent is 1
# 2**f for |f| <= 0.5: Taylor's series, off by 3e-6 of it at most, a fortieth of half a step of the largest weight.
_SERIES = [math.log(2) ** n / math.factorial(n) for n in range(6)]
_SIGN = 0x7FFFFFFF  # all bits but it


def _all(value: float) -> Any:
    return ir.Constant(_VECTOR, [value] * WIDTH)


def _whole(value: int) -> Any:
    return ir.Constant(_WHOLE, [value] * WIDTH)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    """The larger of two, b where either is NaN: one instruction."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _larger_bits(builder: Any, a: Any, b: Any) -> Any:
    """Of numbers without a sign; NaN is the largest."""
    return builder.select(builder.icmp_signed(">", a, b), a, b)


def _sum(builder: Any, a: Any, b: Any) -> Any:
    return builder.add(a, b)


def _power(builder: Any, x: Any) -> Any:
    """2**x, 2**-125 where x is below that, NaN for NaN."""
    fma = fused_multiply_add(builder.module)
    x = _larger(builder, _all(_LOWEST), x)
    whole = builder.fadd(x, _all(_ROUND))
    rest = builder.fsub(x, builder.fsub(whole, _all(_ROUND)))
    series = _all(_SERIES[-1])
    for coefficient in reversed(_SERIES[:-1]):
        series = builder.call(fma, [series, rest, _all(coefficient)])
    exponent = builder.shl(builder.bitcast(whole, _WHOLE), _whole(23))
    return builder.bitcast(builder.add(builder.bitcast(series, _WHOLE), exponent), _VECTOR)


def _whole_power(builder: Any, x: Any) -> Any:
    """2**x of whole x <= 0, exactly; 0 below -126."""
    x = _larger(builder, _all(-127.0), x)
    exponent = builder.add(builder.bitcast(builder.fadd(x, _all(_ROUND)), _WHOLE), _whole(127))
    return builder.bitcast(builder.shl(exponent, _whole(23)), _VECTOR)


def _rounded_up(builder: Any, x: Any) -> Any:
    name = f"llvm.ceil.v{WIDTH}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(_VECTOR, [_VECTOR]), name), [x])


def _score(builder: Any, raw: Any, step: Any, factor: Any, cap: Any) -> Any:
    """In base 2. cap: for scores that are capped, ``2 / cap`` and ``cap``, both in base 2, else None."""
    score = builder.fmul(builder.fmul(builder.sitofp(raw, _VECTOR), step), factor)
    if cap is None:
        return score
    inverse, capped = cap
    exponent = builder.fmul(score, inverse)
    exponent = _larger(builder, _all(-_FURTHEST), exponent)
    exponent = builder.select(builder.fcmp_ordered(">", exponent, _all(_FURTHEST)), _all(_FURTHEST), exponent)
    # tanh(x) = 1 - 2 / (e**2x + 1)
    below = builder.fdiv(_all(2.0), builder.fadd(_power(builder, exponent), _all(1.0)))
    return builder.fmul(capped, builder.fsub(_all(1.0), below))


def _constants(builder: Any, address: Any) -> list[Any]:
    """Four numbers at an address, each in all lanes: those that ``constants`` puts there."""
    return [
        spread(builder, load(builder, builder.add(address, ir.Constant(_I64, 4 * n)), _F32), _VECTOR) for n in range(4)
    ]


def _finish(builder: Any, before: Any, tile: Any, constants: list[Any]) -> tuple[Any, list[Any]]:
    """Bring the rows' state up to date.

    Args:
        before: the rows' reference and total.
        tile: its reference, the whole total of its weights and the bits of the largest.

    Returns:
        What weights are multiplied by, and what is kept: reference, total, what a whole product is worth, and what sums
        are multiplied by.
    """
    (reference, total), (tile_reference, whole_total, top) = before, tile
    after = _larger(builder, reference, tile_reference)
    old = _whole_power(builder, builder.fsub(reference, after))
    new = _whole_power(builder, builder.fsub(tile_reference, after))
    heaviest = builder.bitcast(top, _VECTOR)
    multiplier = builder.fdiv(constants[0], heaviest)
    multiplier = builder.select(builder.fcmp_ordered("<", multiplier, _all(_MOST)), multiplier, _all(_MOST))
    worth = builder.fmul(builder.fmul(heaviest, constants[1]), new)
    tile_total = builder.fmul(builder.fmul(builder.sitofp(whole_total, _VECTOR), _all(1.0 / _FINE)), new)
    added = builder.call(fused_multiply_add(builder.module), [total, old, tile_total])
    return multiplier, [after, added, worth, old]


def _nearest(builder: Any, x: Any, factor: Any) -> Any:
    """``x * factor`` to the nearest whole number, as bits of ``_ROUND`` and it; 16 of them are the number itself."""
    fma = fused_multiply_add(builder.module)
    return builder.bitcast(builder.call(fma, [x, factor, _all(_ROUND)]), _WHOLE)


def _weigh(builder: Any, score: Any, reference: Any, step: Any, within: Any) -> tuple[Any, Any, Any]:
    """A weight in fine whole numbers, it times its value's step, and the bits of that; within: None where all are."""
    weight = _power(builder, builder.fsub(score, reference))
    heavy = builder.fmul(weight, step)
    if within is not None:
        weight, heavy = (builder.select(within, x, _all(0.0)) for x in (weight, heavy))
    fine = builder.sub(_nearest(builder, weight, _all(_FINE)), builder.bitcast(_all(_ROUND), _WHOLE))
    return fine, heavy, builder.and_(builder.bitcast(heavy, _WHOLE), _whole(_SIGN))


def _emit_columns(builder: Any, masked: bool, capped: bool, arguments: list[Any]) -> None:
    """A vector of 16 rows, key after key."""
    scores, stride, keys, steps, factor_at, constants_at, first, end, state, state_stride, out = arguments
    factor, constants = load(builder, factor_at, _VECTOR), _constants(builder, constants_at)
    cap = constants[2:] if capped else None
    low, high = (load(builder, address, _WHOLE) for address in (first, end))

    def number(value: int) -> Any:
        return ir.Constant(_I64, value)

    def within(key: Any) -> Any:
        if not masked:
            return None
        index = spread(builder, builder.trunc(key, _I32), _WHOLE)
        return builder.and_(builder.icmp_signed(">=", index, low), builder.icmp_signed("<", index, high))

    def step(key: Any, part: int) -> Any:
        at = builder.add(steps, builder.mul(builder.add(key, number(part * KEYS)), number(4)))
        return spread(builder, load(builder, at, _F32), _VECTOR)

    def each(body: Callable[[Any, Any], None], at_once: int) -> None:
        with cgutils.for_range(builder, builder.udiv(keys, number(at_once)), intp=_I64) as loop:
            begin = builder.mul(loop.index, number(at_once))
            for n in range(at_once):
                key = builder.add(begin, number(n))
                body(key, builder.add(scores, builder.mul(key, stride)))

    highest, top, total = (cgutils.alloca_once(builder, kind) for kind in (_VECTOR, _WHOLE, _WHOLE))
    builder.store(_all(-math.inf), highest)
    builder.store(_whole(0), top)
    builder.store(_whole(0), total)

    def score(key: Any, place: Any) -> None:
        found = _score(builder, load(builder, place, _WHOLE), step(key, 0), factor, cap)
        store(builder, found, place)
        inside = within(key)
        seen = found if inside is None else builder.select(inside, found, _all(-math.inf))
        builder.store(_larger(builder, seen, builder.load(highest)), highest)

    each(score, 4)
    reference = _rounded_up(builder, builder.load(highest))

    def weigh(key: Any, place: Any) -> None:
        fine, heavy, bits = _weigh(builder, load(builder, place, _VECTOR), reference, step(key, 1), within(key))
        builder.store(builder.add(builder.load(total), fine), total)
        builder.store(_larger_bits(builder, builder.load(top), bits), top)
        store(builder, heavy, place)

    each(weigh, 4)
    places = [builder.add(state, builder.mul(state_stride, number(n))) for n in range(4)]
    before = load(builder, places[0], _VECTOR), load(builder, places[1], _VECTOR)
    tile = reference, builder.load(total), builder.load(top)
    multiplier, after = _finish(builder, before, tile, constants)
    for value, place in zip(after, places, strict=True):
        store(builder, value, place)
    with cgutils.for_range(builder, builder.udiv(keys, number(2)), intp=_I64) as loop:
        place = builder.add(scores, builder.mul(builder.mul(loop.index, number(2)), stride))
        even = _nearest(builder, load(builder, place, _VECTOR), multiplier)
        odd = _nearest(builder, load(builder, builder.add(place, stride), _VECTOR), multiplier)
        pair = builder.or_(builder.and_(even, _whole(0xFFFF)), builder.shl(odd, _whole(16)))
        store(builder, pair, builder.add(out, builder.mul(loop.index, number(LINE))))


def _emit_row(builder: Any, capped: bool, arguments: list[Any]) -> None:
    """One row, 16 keys to a vector."""
    scores, steps, factor_at, constants_at, first, end, state, state_stride, out = arguments
    factor, constants = spread(builder, load(builder, factor_at, _F32), _VECTOR), _constants(builder, constants_at)
    cap = constants[2:] if capped else None
    places = [builder.add(state, builder.mul(state_stride, ir.Constant(_I64, n))) for n in range(4)]

    def at(base: Any, distance: int) -> Any:
        return builder.add(base, ir.Constant(_I64, distance))

    def together(vectors: list[Any], combine: Callable[[Any, Any, Any], Any]) -> Any:
        """All lanes of four vectors, in all lanes of one."""
        halves = combine(builder, vectors[0], vectors[1]), combine(builder, vectors[2], vectors[3])
        whole = combine(builder, *halves)
        return spread(builder, totalled(builder, whole, combine), whole.type)

    low, high = (spread(builder, builder.trunc(word, _I32), _WHOLE) for word in (first, end))
    lanes = [ir.Constant(_WHOLE, list(range(n, n + WIDTH))) for n in range(0, KEYS, WIDTH)]
    within = [builder.and_(builder.icmp_signed(">=", n, low), builder.icmp_signed("<", n, high)) for n in lanes]
    raw = [load(builder, at(scores, n * LINE), _WHOLE) for n in range(4)]
    of_keys, of_values = (
        [load(builder, at(steps, (part * KEYS + n * WIDTH) * 4), _VECTOR) for n in range(4)] for part in range(2)
    )
    found = [_score(builder, raw[n], of_keys[n], factor, cap) for n in range(4)]
    seen = [builder.select(inside, x, _all(-math.inf)) for inside, x in zip(within, found, strict=True)]
    reference = _rounded_up(builder, together(seen, _larger))
    weighed = [_weigh(builder, found[n], reference, of_values[n], within[n]) for n in range(4)]
    total = together([fine for fine, _, _ in weighed], _sum)
    top = together([bits for _, _, bits in weighed], _larger_bits)
    before = tuple(spread(builder, load(builder, place, _F32), _VECTOR) for place in places[:2])
    multiplier, after = _finish(builder, before, (reference, total, top), constants)
    for value, place in zip(after, places, strict=True):
        store(builder, builder.extract_element(value, ir.Constant(_I32, 0)), place)
    for n, (_, heavy, _) in enumerate(weighed):
        store(builder, builder.trunc(_nearest(builder, heavy, multiplier), _SHORTS), at(out, n * 2 * WIDTH))


def _columns(masked: bool, capped: bool) -> Any:
    name = f"softmax_columns{'_masked' * masked}{'_capped' * capped}"
    return outlined_intrinsic(name, 11, lambda b, v: _emit_columns(b, masked, capped, v))


_whole_plain, _whole_capped = _columns(False, False), _columns(False, True)
_part_plain, _part_capped = _columns(True, False), _columns(True, True)
_row_plain = outlined_intrinsic("softmax_of_row", 9, lambda b, v: _emit_row(b, False, v))
_row_capped = outlined_intrinsic("softmax_of_row_capped", 9, lambda b, v: _emit_row(b, True, v))


@inline
def put_constants(address: int, largest: int, softcap: float) -> None:
    """Write the float32 ``[4]`` that the functions below take as ``constants``."""
    numbers = floats(address, 4)
    numbers[0], numbers[1] = np.float32(largest), np.float32(1.0 / largest)
    numbers[2], numbers[3] = np.float32(0), np.float32(0)
    if softcap != 0.0:
        numbers[2], numbers[3] = np.float32(2.0 * LOG2_E / softcap), np.float32(softcap * LOG2_E)


@inline
def softmax_columns(
    scores: int, stride: int, keys: int, steps: int, factor: int, constants: int, first: int, end: int, state: int,
    state_stride: int, out: int, masked: bool, capped: bool,
) -> None:  # fmt: skip
    """Turn the scores of 16 rows into their weights.

    Args:
        scores: address of int32 ``[keys, 16]``, whose rows lie ``stride`` bytes apart; spoilt.
        keys: at most 64, a multiple of 16.
        steps: address of float32 ``[2, 64]``: what the keys' whole numbers are worth, then the values'.
        factor: address of float32 ``[16]``: what the queries' are, times the scale; times log2(e) where not capped.
        constants: see ``put_constants``; largest: what a weight may become.
        first, end: addresses of int32 ``[16]``: of each row the first of the keys it sees and that behind the last.
        state: address of four rows of float32 ``[16]``, ``state_stride`` bytes apart: reference and total so far, LEAST
            and 0 at first, brought up to date; then what a whole product is worth and what the row's sums are to be
            multiplied by before it is added, both written.
        out: address of the weights, int16 ``[keys / 2, 16, 2]``. 0 for what a row does not see.
        masked: False where all rows see all keys.
        capped: see ``put_constants``.

    What is not finite makes a product's worth NaN.
    """
    if masked and capped:
        _part_capped(scores, stride, keys, steps, factor, constants, first, end, state, state_stride, out)
    elif masked:
        _part_plain(scores, stride, keys, steps, factor, constants, first, end, state, state_stride, out)
    elif capped:
        _whole_capped(scores, stride, keys, steps, factor, constants, first, end, state, state_stride, out)
    else:
        _whole_plain(scores, stride, keys, steps, factor, constants, first, end, state, state_stride, out)


@inline
def softmax_of_row(
    scores: int, steps: int, factor: int, constants: int, first: int, end: int, state: int, state_stride: int,
    out: int, capped: bool,
) -> None:  # fmt: skip
    """As ``softmax_columns``, for one row of 64 scores side by side, which sees the keys ``first`` to ``end - 1``."""
    if capped:
        _row_capped(scores, steps, factor, constants, first, end, state, state_stride, out)
    else:
        _row_plain(scores, steps, factor, constants, first, end, state, state_stride, out)
