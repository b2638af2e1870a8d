"""The two tiles of attention in whole numbers: int16 by int16, in pairs, added up in int32.

Where keys, values, queries and weights are int16, a processor multiplies twice as many at once as of float32, and sums
are exact, whatever their order. That lets the two ways of attention differ in what lies side by side in a vector, 16
queries' rows for a prompt chunk or 16 keys for a single row, and give the same bits.

One operand of a tile is read as vectors of 16 pairs, the other a pair at a time, spread over the vector:

    sums[a, b] = sum over pairs of  spread(one[a, pair]) * vectors[b, pair]        a < across, b < beside
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from kernels.cpu.emitting import LINE, address, bring_near, load, number, store
from kernels.cpu.integer_tile import products_of_this_machine
from kernels.cpu.jit import inline
from kernels.cpu.outline import outlined_intrinsic
from kernels.cpu.tile import WIDTH, fused_multiply_add, spread

RUN = 8  # pairs of keys that lie side by side: 16 keys

_I16, _I32, _I64, _F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_SUMS, _FLOATS = ir.VectorType(_I32, WIDTH), ir.VectorType(_F32, WIDTH)
_PAIRS = ir.VectorType(_I16, 2 * WIDTH)
_BUSY = 6  # sums at a time that keep the multiplier busy


def _turn(builder: Any, sums: dict[Any, Any], across: int, beside: int, one: Any, vectors: Any) -> None:
    """A pair more. one, vectors: ``(n)`` -> address."""
    products: Callable[[Any, Any, Any], Any] = products_of_this_machine()
    of_vectors = [load(builder, vectors(b), _PAIRS) for b in range(beside)]
    for a in range(across):
        of_one = builder.bitcast(spread(builder, load(builder, one(a), _I32), _SUMS), _PAIRS)
        for b in range(beside):
            sums[a, b] = builder.add(sums[a, b], products(builder, of_one, of_vectors[b]))


def _kept(builder: Any, across: int, beside: int, chains: int) -> dict[Any, Any]:
    """Variables of sums that are zero; LLVM keeps them in registers."""
    places = {
        (chain, a, b): cgutils.alloca_once(builder, _SUMS)
        for chain in range(chains) for a in range(across) for b in range(beside)
    }  # fmt: skip
    for place in places.values():
        builder.store(ir.Constant(_SUMS, [0] * WIDTH), place)
    return places


def _emit_scores(builder: Any, across: int, beside: int, arguments: list[Any]) -> None:
    """The sums as they are. A few at a time, several chains of them share the pairs."""
    one, one_stride, one_step, vectors, vector_stride, pairs, out, out_stride = arguments[:8]
    cells = [(a, b) for a in range(across) for b in range(beside)]
    chains = 1 if len(cells) >= _BUSY else 2 if 2 * len(cells) >= _BUSY else 4
    places = _kept(builder, across, beside, chains)
    with cgutils.for_range(builder, builder.udiv(pairs, number(chains)), intp=_I64) as loop:
        for chain in range(chains):
            pair = builder.add(builder.mul(loop.index, number(chains)), number(chain))
            at_one = address(builder, one, builder.mul(pair, one_step))
            at_vector = address(builder, vectors, builder.mul(pair, number(LINE)))
            sums = {cell: builder.load(places[chain, *cell]) for cell in cells}
            for ahead in arguments[8:]:
                bring_near(builder, address(builder, ahead, builder.mul(pair, number(LINE))))
            _turn(
                builder, sums, across, beside,
                lambda a, at=at_one: address(builder, at, (a, one_stride)),
                lambda b, at=at_vector: address(builder, at, (b, vector_stride)),
            )  # fmt: skip
            for cell in cells:
                builder.store(sums[cell], places[chain, *cell])
    for a, b in cells:
        total = builder.load(places[0, a, b])
        for chain in range(1, chains):
            total = builder.add(total, builder.load(places[chain, a, b]))
        store(builder, total, address(builder, out, (a, out_stride), number(b * LINE)))


def _emit_values(builder: Any, across: int, beside: int, by_rows: bool, arguments: list[Any]) -> None:
    """The sums over runs of keys, made floats and added to what is there; by_rows: a is a row, else a dimension."""
    table, runs, weights, weight_stride, into_run, step, out, out_stride, worth, factor = arguments[:10]
    cells = [(a, b) for a in range(across) for b in range(beside)]
    places = _kept(builder, across, beside, 1)
    with cgutils.for_range(builder, runs, intp=_I64) as loop:
        entries = [address(builder, addresses, (8, loop.index)) for addresses in (table, *arguments[10:])]
        run, *ahead = (address(builder, load(builder, entry, _I64), into_run) for entry in entries)
        of_run = builder.mul(loop.index, number(RUN * (4 if by_rows else LINE)))
        sums = {cell: builder.load(places[0, *cell]) for cell in cells}
        for pair in range(RUN):
            value, weight = address(builder, run, (pair, step)), address(builder, weights, of_run)
            for run_ahead in ahead:
                for b in range(beside):
                    bring_near(builder, address(builder, run_ahead, (pair, step), number(b * LINE)))
            if by_rows:
                _turn(
                    builder, sums, across, beside,
                    lambda a, at=weight, p=pair: address(builder, at, (a, weight_stride), number(p * 4)),
                    lambda b, at=value: address(builder, at, number(b * LINE)),
                )  # fmt: skip
            else:
                _turn(
                    builder, sums, across, beside,
                    lambda a, at=value: address(builder, at, number(a * 4)),
                    lambda b, at=weight, p=pair: address(builder, at, (b, weight_stride), number(p * LINE)),
                )  # fmt: skip
        for cell in cells:
            builder.store(sums[cell], places[0, *cell])
    fma = fused_multiply_add(builder.module)

    def of_row(base: Any, a: int, b: int) -> Any:
        if by_rows:
            return spread(builder, load(builder, address(builder, base, number(4 * a)), _F32), _FLOATS)
        return load(builder, address(builder, base, number(LINE * b)), _FLOATS)

    for a, b in cells:
        place = address(builder, out, (a, out_stride), number(b * LINE))
        before = builder.fmul(load(builder, place, _FLOATS), of_row(factor, a, b))
        added = builder.sitofp(builder.load(places[0, a, b]), _FLOATS)
        store(builder, builder.call(fma, [added, of_row(worth, a, b), before]), place)


def _scores(across: int, beside: int, fetches: bool = False) -> Any:
    name = f"score_tile_{across}_{beside}" + "_fetching" * fetches
    return outlined_intrinsic(name, 8 + fetches, lambda b, v: _emit_scores(b, across, beside, v))


def _values(across: int, beside: int, by_rows: bool) -> Any:
    name = f"value_tile_{across}_{beside}_{'rows' if by_rows else 'dimensions'}"
    return outlined_intrinsic(name, 10 + by_rows, lambda b, v: _emit_values(b, across, beside, by_rows, v))


ACROSS = 8  # keys or dimensions of a tile of a chunk
BESIDE = 3  # vectors of 16 rows of it
MOST_ROWS = 6  # of a tile of single rows
COLUMNS = 4  # vectors of 16 dimensions of it

_c81, _c82, _c83 = (_scores(ACROSS, beside, fetches=True) for beside in (1, 2, 3))
_r1, _r2, _r3, _r4, _r5, _r6 = (_scores(rows, 1, fetches=True) for rows in range(1, MOST_ROWS + 1))
_d81, _d82, _d83 = (_values(ACROSS, beside, False) for beside in (1, 2, 3))
_v1, _v2, _v3, _v4, _v5, _v6 = (_values(rows, COLUMNS, True) for rows in range(1, MOST_ROWS + 1))


@inline
def chunk_scores(
    beside: int, keys: int, rows: int, row_stride: int, pairs: int, out: int, out_stride: int, ahead: int
) -> None:  # fmt: skip
    """``out[key, row] = key @ row`` in int32, for 8 of the 16 keys of a run and ``beside`` times 16 rows.

    Meanwhile as many bytes as a run has are brought near from address ``ahead`` on.

    Args:
        beside: 1 to 3.
        keys: address of the first key's first pair, int16 ``[pairs, 16, 2]``.
        rows: address of int16 ``[beside, pairs, 16, 2]``; the first dimension's ``row_stride`` bytes apart.
        out: address; its rows lie ``out_stride`` bytes apart.
    """
    if beside == 3:
        _c83(keys, 4, LINE, rows, row_stride, pairs, out, out_stride, ahead)
    elif beside == 2:
        _c82(keys, 4, LINE, rows, row_stride, pairs, out, out_stride, ahead)
    else:
        _c81(keys, 4, LINE, rows, row_stride, pairs, out, out_stride, ahead)


@inline
def row_scores(
    rows: int, queries: int, query_stride: int, keys: int, pairs: int, out: int, out_stride: int, ahead: int
) -> None:  # fmt: skip
    """``out[row, key] = row @ key`` in int32, for 1 to 6 rows, int16 and ``query_stride`` bytes apart, and 16 keys.

    Meanwhile as many bytes as the keys have are brought near from address ``ahead`` on.
    """
    if rows == 6:
        _r6(queries, query_stride, 4, keys, 0, pairs, out, out_stride, ahead)
    elif rows == 5:
        _r5(queries, query_stride, 4, keys, 0, pairs, out, out_stride, ahead)
    elif rows == 4:
        _r4(queries, query_stride, 4, keys, 0, pairs, out, out_stride, ahead)
    elif rows == 3:
        _r3(queries, query_stride, 4, keys, 0, pairs, out, out_stride, ahead)
    elif rows == 2:
        _r2(queries, query_stride, 4, keys, 0, pairs, out, out_stride, ahead)
    else:
        _r1(queries, query_stride, 4, keys, 0, pairs, out, out_stride, ahead)


@inline
def chunk_values(
    beside: int, table: int, runs: int, weights: int, weight_stride: int, into_run: int, step: int, out: int,
    out_stride: int, worth: int, factor: int,
) -> None:  # fmt: skip
    """``out[d, row] = factor[row] * out[d, row] + worth[row] * sum over keys of value[key, d] * weight[key, row]``.

    For 8 dimensions and ``beside`` times 16 rows; the sum is a whole number.

    Args:
        beside: 1 to 3.
        table: address of the addresses of the runs of 16 keys; of each, values int16 ``[8, size, 2]``.
        runs: how many of them there are.
        weights: address of int16 ``[beside, 8 * runs, 16, 2]``, the first dimension's ``weight_stride`` bytes apart.
        into_run: bytes from a run's begin to the first dimension.
        step: bytes from a pair of keys to the next.
        out: address of float32; dimensions lie ``out_stride`` bytes apart.
        worth, factor: addresses of float32 ``[beside * 16]``.
    """
    if beside == 3:
        _d83(table, runs, weights, weight_stride, into_run, step, out, out_stride, worth, factor)
    elif beside == 2:
        _d82(table, runs, weights, weight_stride, into_run, step, out, out_stride, worth, factor)
    else:
        _d81(table, runs, weights, weight_stride, into_run, step, out, out_stride, worth, factor)


@inline
def row_values(
    rows: int, table: int, runs: int, weights: int, weight_stride: int, into_run: int, step: int, out: int,
    out_stride: int, worth: int, factor: int, ahead: int,
) -> None:  # fmt: skip
    """As ``chunk_values``, for 1 to 6 rows and 64 dimensions: weights ``[rows, 16 * runs]``, out ``[rows, 64]``.

    Meanwhile runs whose addresses begin at address ``ahead`` are brought near, as much of each as of those read.
    """
    if rows == 6:
        _v6(table, runs, weights, weight_stride, into_run, step, out, out_stride, worth, factor, ahead)
    elif rows == 5:
        _v5(table, runs, weights, weight_stride, into_run, step, out, out_stride, worth, factor, ahead)
    elif rows == 4:
        _v4(table, runs, weights, weight_stride, into_run, step, out, out_stride, worth, factor, ahead)
    elif rows == 3:
        _v3(table, runs, weights, weight_stride, into_run, step, out, out_stride, worth, factor, ahead)
    elif rows == 2:
        _v2(table, runs, weights, weight_stride, into_run, step, out, out_stride, worth, factor, ahead)
    else:
        _v1(table, runs, weights, weight_stride, into_run, step, out, out_stride, worth, factor, ahead)
