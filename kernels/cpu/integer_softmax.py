"""From whole-number scores to whole-number weights, for a tile of up to 64 keys.

A tile stands for itself: its weights are powers of two of what a score lies below its largest, rounded up to a whole
number; times the steps of the values they are rounded to whole numbers by the largest of them. Tiles then add up as in
the online softmax (Milakov and Gimelshein, arXiv:1805.02867, section 3), but what they are scaled by is a power of two,
which rounds nothing: the sums depend on the order of the tiles alone, not on which of them were seen together.

Both functions do the same to each score, in the same order, and what they sum over the keys of a tile are whole
numbers or largest elements: they give the same bits.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from kernels.cpu.emitting import LINE, Abreast, load, number, store
from kernels.cpu.integer_weights import (
    UNIT,
    added,
    constants_at,
    finish,
    larger_bits,
    nearest,
    reference_of,
    score,
    weigh,
)
from kernels.cpu.jit import inline
from kernels.cpu.memory import floats
from kernels.cpu.outline import outlined_intrinsic
from kernels.cpu.tile import WIDTH, spread, totalled
from kernels.cpu.vectors import VECTOR, WHOLE, all_of, larger, whole_of

KEYS = 64
LOG2_E = math.log2(math.e)

_I16, _I32, _I64, _F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_AT_ONCE = 4  # keys whose instructions stand side by side
_SHORTS = ir.VectorType(_I16, WIDTH)


def _together(builder: Any, vectors: Any, combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Four vectors combined into one, two by two."""
    return combine(builder, combine(builder, vectors[0], vectors[1]), combine(builder, vectors[2], vectors[3]))


def _store_all(builder: Any, values: Sequence[Any], places: Sequence[Any]) -> None:
    for value, place in zip(values, places, strict=True):
        store(builder, value, place)


def _store_pairs(builder: Any, scores: Any, stride: Any, keys: Any, multiplier: Any, out: Any) -> None:
    """Weights, rounded, of two keys at a time side by side."""
    two = ir.Constant(_I64, 2)
    with cgutils.for_range(builder, builder.udiv(keys, two), intp=_I64) as loop:
        place = builder.add(scores, builder.mul(builder.mul(loop.index, two), stride))
        even, odd = (
            nearest(builder, load(builder, at, VECTOR), multiplier)
            for at in (place, builder.add(place, stride))
        )
        low = builder.and_(even, whole_of(0xFFFF))
        pair = builder.or_(low, builder.shl(odd, whole_of(16)))
        store(builder, pair, builder.add(out, builder.mul(loop.index, ir.Constant(_I64, LINE))))


def _emit_columns(builder: Any, masked: bool, capped: bool, arguments: list[Any]) -> None:
    """A vector of 16 rows, key after key."""
    scores, stride, keys, steps, factor_at, numbers, first, end, state, state_stride, out = arguments
    factor, constants = load(builder, factor_at, VECTOR), constants_at(builder, numbers)
    cap = constants[2:] if capped else None
    low, high = (load(builder, address, WHOLE) for address in (first, end))

    abreast = Abreast(builder, _AT_ONCE)

    def within(key: Any) -> Any:
        if not masked:
            return None
        index = spread(abreast, abreast.trunc(key, _I32), WHOLE)
        return abreast.and_(abreast.icmp_signed(">=", index, low), abreast.icmp_signed("<", index, high))

    def step(key: Any, part: int) -> Any:
        at = abreast.add(steps, abreast.mul(abreast.add(key, number(part * KEYS)), number(4)))
        return spread(abreast, load(abreast, at, _F32), VECTOR)

    def each(body: Callable[[Any, Any], None]) -> None:
        with cgutils.for_range(builder, builder.udiv(keys, number(_AT_ONCE)), intp=_I64) as loop:
            begin = builder.mul(loop.index, number(_AT_ONCE))
            key = tuple(builder.add(begin, number(n)) for n in range(_AT_ONCE))
            body(key, abreast.add(scores, abreast.mul(key, stride)))

    def gather(variable: Any, found: Any, combine: Callable[[Any, Any, Any], Any]) -> None:
        builder.store(combine(builder, _together(builder, found, combine), builder.load(variable)), variable)

    highest, top, total = (cgutils.alloca_once(builder, kind) for kind in (VECTOR, WHOLE, WHOLE))
    builder.store(all_of(-math.inf), highest)
    builder.store(whole_of(0), top)
    builder.store(whole_of(0), total)

    def score_keys(key: Any, place: Any) -> None:
        found = score(abreast, load(abreast, place, WHOLE), step(key, 0), factor, cap)
        _store_all(builder, found, place)
        inside = within(key)
        seen = found if inside is None else abreast.select(inside, found, all_of(-math.inf))
        gather(highest, seen, larger)

    each(score_keys)
    reference = reference_of(builder, builder.load(highest), factor, cap)

    def weigh_keys(key: Any, place: Any) -> None:
        found, of_value = load(abreast, place, VECTOR), step(key, 1)
        fine, heavy, bits = weigh(abreast, found, factor, reference, of_value, within(key), cap)
        gather(total, fine, added)
        gather(top, bits, larger_bits)
        _store_all(builder, heavy, place)

    each(weigh_keys)
    places = [builder.add(state, builder.mul(state_stride, number(n))) for n in range(4)]
    before = load(builder, places[0], VECTOR), load(builder, places[1], VECTOR)
    too_much = spread(builder, builder.mul(builder.trunc(keys, _I32), ir.Constant(_I32, UNIT)), WHOLE)
    tile = reference, builder.sub(builder.load(total), too_much), builder.load(top)
    multiplier, after = finish(builder, before, tile, constants)
    _store_all(builder, after, places)
    _store_pairs(builder, scores, stride, keys, multiplier, out)


def _emit_row(builder: Any, capped: bool, arguments: list[Any]) -> None:
    """One row, 16 keys to a vector."""
    scores, steps, factor_at, numbers, first, end, state, state_stride, out = arguments
    factor, constants = spread(builder, load(builder, factor_at, _F32), VECTOR), constants_at(builder, numbers)
    cap = constants[2:] if capped else None
    places = [builder.add(state, builder.mul(state_stride, ir.Constant(_I64, n))) for n in range(4)]

    def at(base: Any, distance: int) -> Any:
        return builder.add(base, ir.Constant(_I64, distance))

    def together(vectors: Any, combine: Callable[[Any, Any, Any], Any]) -> Any:
        """All lanes of four vectors, in all lanes of one."""
        whole = _together(builder, vectors, combine)
        return spread(builder, totalled(builder, whole, combine), whole.type)

    low, high = (spread(builder, builder.trunc(word, _I32), WHOLE) for word in (first, end))
    abreast = Abreast(builder, 4)
    lanes = tuple(ir.Constant(WHOLE, list(range(n, n + WIDTH))) for n in range(0, KEYS, WIDTH))
    within = abreast.and_(abreast.icmp_signed(">=", lanes, low), abreast.icmp_signed("<", lanes, high))
    raw = load(abreast, tuple(at(scores, n * LINE) for n in range(4)), WHOLE)
    of_keys, of_values = (
        load(abreast, tuple(at(steps, (part * KEYS + n * WIDTH) * 4) for n in range(4)), VECTOR) for part in range(2)
    )
    found = score(abreast, raw, of_keys, factor, cap)
    seen = abreast.select(within, found, all_of(-math.inf))
    reference = reference_of(builder, together(seen, larger), factor, cap)
    fine, heavy, bits = weigh(abreast, found, factor, reference, of_values, within, cap)
    too_much = whole_of(KEYS * UNIT % (1 << 32))
    total = builder.sub(together(fine, added), too_much)
    top = together(bits, larger_bits)
    before = tuple(spread(builder, load(builder, place, _F32), VECTOR) for place in places[:2])
    multiplier, after = finish(builder, before, (reference, total, top), constants)
    for value, place in zip(after, places, strict=True):
        store(builder, builder.extract_element(value, ir.Constant(_I32, 0)), place)
    for n, whole in enumerate(nearest(abreast, heavy, multiplier)):
        store(builder, builder.trunc(whole, _SHORTS), at(out, n * 2 * WIDTH))


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
