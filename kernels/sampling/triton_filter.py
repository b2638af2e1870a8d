"""Where a row of logits is cut by top-k, top-p and min-p, found in the Triton language without sorting the vocabulary.

Floating-point numbers are ordered as the whole numbers that their bits spell (negative ones with the rest of their
bits turned round). Over those, a search with three probes a pass finds the smallest number that is kept: 32 bits take
at most 16 passes over the row, which lies in the cache, and a search that has met its count exactly ends earlier.

The cut is two numbers, threshold and last tie: a token stays if it lies above the threshold, or on it with an id up
to the last tie. That is what a stable descending sort would keep, so the reference's choice among equals is kept too.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def ordered(x):
    """float32 -> int32 in the same order. Zero and negative zero are one number."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def middle(low, high):
    """The mean of two whole numbers, rounded down; their sum may be too large."""
    return (low & high) + ((low ^ high) >> 1)


@triton.jit
def scale_row(logits, scaled, temperature, vocab, COLUMNS: tl.constexpr):
    """Write logits over temperature to ``scaled``; the row's largest."""
    lanes = tl.arange(0, COLUMNS)
    largest = tl.full([COLUMNS], -float("inf"), tl.float32)
    for start in range(0, vocab, COLUMNS):
        columns = start + lanes
        x = tl.load(logits + columns, mask=columns < vocab, other=-float("inf")).to(tl.float32)
        x = tl.div_rn(x, temperature)
        tl.store(scaled + columns, x, mask=columns < vocab)
        largest = tl.maximum(largest, x)
    return tl.max(largest, axis=0)


@triton.jit
def weight_of(x, key, low, largest, MASS: tl.constexpr):
    """What a token adds to the measure: its unnormalised probability, or one."""
    if MASS:
        return tl.where(key >= low, tl.exp(x - largest), 0.0)
    else:
        return tl.where(key >= low, 1.0, 0.0)


@triton.jit
def measure(scaled, vocab, low, largest, MASS: tl.constexpr, COLUMNS: tl.constexpr):
    """The measure of all tokens from ``low`` on."""
    lanes, total = tl.arange(0, COLUMNS), tl.zeros([COLUMNS], tl.float32)
    for start in range(0, vocab, COLUMNS):
        x = tl.load(scaled + start + lanes, mask=start + lanes < vocab, other=-float("inf"))
        key = tl.where(start + lanes < vocab, ordered(x), -0x80000000)
        total += weight_of(x, key, low, largest, MASS)
    return tl.sum(total, axis=0)


@triton.jit
def search(scaled, vocab, low, largest, wanted, MASS: tl.constexpr, COLUMNS: tl.constexpr):
    """The largest number whose tokens, from it on, measure at least ``wanted``. Those from ``low`` on must.

    MASS: tokens measure their probability, unnormalised; otherwise they are counted. A float32 counts exactly up to
    2**24 tokens.
    """
    lanes = tl.arange(0, COLUMNS)
    high = ordered(largest) + 1
    while high > low + 1:
        half = middle(low, high)
        first, third = middle(low, half), middle(half, high)
        at_first, at_half = tl.zeros([COLUMNS], tl.float32), tl.zeros([COLUMNS], tl.float32)
        at_third = tl.zeros([COLUMNS], tl.float32)
        for start in range(0, vocab, COLUMNS):
            x = tl.load(scaled + start + lanes, mask=start + lanes < vocab, other=-float("inf"))
            key = tl.where(start + lanes < vocab, ordered(x), -0x80000000)
            at_first += weight_of(x, key, first, largest, MASS)
            at_half += weight_of(x, key, half, largest, MASS)
            at_third += weight_of(x, key, third, largest, MASS)
        from_first, from_half = tl.sum(at_first, axis=0), tl.sum(at_half, axis=0)
        from_third = tl.sum(at_third, axis=0)
        if from_third >= wanted:
            low, reached = third, from_third
        elif from_half >= wanted:
            low, high, reached = half, third, from_half
        elif from_first >= wanted:
            low, high, reached = first, half, from_first
        else:
            high, reached = first, wanted + 1.0
        if reached == wanted:
            high = low + 1
    return low


@triton.jit
def nth_tie(scaled, vocab, key, count, COLUMNS: tl.constexpr):
    """Id of the ``count``-th token, in order of id, that lies on ``key``; the vocabulary's size if there are fewer."""
    lanes = tl.arange(0, COLUMNS)
    before, found = 0, vocab
    for start in range(0, vocab, COLUMNS):
        x = tl.load(scaled + start + lanes, mask=start + lanes < vocab, other=-float("inf"))
        tie = ((ordered(x) == key) & (start + lanes < vocab)).to(tl.int32)
        rank = before + tl.cumsum(tie, axis=0)
        found = tl.minimum(found, tl.min(tl.where((tie == 1) & (rank == count), start + lanes, vocab), axis=0))
        before += tl.sum(tie, axis=0)
    return found


@triton.jit
def cut_kernel(
    logits, scaled, temperature, top_k, top_p, min_p, thresholds, last_ties, vocab, row_stride, COLUMNS: tl.constexpr
):  # fmt: skip
    """Find one row's cut. Grid: ``(R,)``. Rows that are greedy or keep everything end at once."""
    row = tl.program_id(0).to(tl.int64)
    heat, k, p, share = tl.load(temperature + row), tl.load(top_k + row), tl.load(top_p + row), tl.load(min_p + row)
    by_count, by_mass = (k > 0) & (k < vocab), p < 1.0
    tl.store(thresholds + row, -0x80000000)
    tl.store(last_ties + row, vocab)
    if (heat == 0.0) | ((share <= 0.0) & ~by_count & ~by_mass):
        return
    scaled += row * vocab
    largest = scale_row(logits + row * row_stride, scaled, heat, vocab, COLUMNS)
    tl.debug_barrier()  # the row is read back by other threads than wrote it
    threshold = ordered(-float("inf") + heat * 0.0)
    if by_count:
        threshold = search(scaled, vocab, threshold, largest, k.to(tl.float32), False, COLUMNS)
    if by_mass:
        wanted = p * measure(scaled, vocab, threshold, largest, True, COLUMNS)
        threshold = search(scaled, vocab, threshold, largest, wanted, True, COLUMNS)
        above = measure(scaled, vocab, threshold + 1, largest, True, COLUMNS)
        value = (threshold ^ ((threshold >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        each = tl.exp(value - largest)
        # Ties are kept while what lies before them falls short; at least one, as the search stopped here. The search
        # may have stopped between two tokens' numbers: then nothing lies on the threshold, and no tie is found.
        count = tl.ceil(tl.minimum((wanted - above) / tl.maximum(each, 1e-38), 1e9)).to(tl.int32)
        tl.store(last_ties + row, nth_tie(scaled, vocab, threshold, tl.maximum(count, 1), COLUMNS))
    if share > 0.0:
        least = ordered(largest + tl.log(share))
        if least > threshold:
            threshold = least
            tl.store(last_ties + row, vocab)
    tl.store(thresholds + row, threshold)
