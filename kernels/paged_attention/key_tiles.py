"""The inner loop of attention in the Triton language: query rows against a range of key tiles, softmax as it goes.

The running softmax is that of Milakov and Gimelshein (arXiv:1805.02867) as used by FlashAttention-2 (arXiv:2307.08691,
section 3.1): a row keeps its largest score, the sum of its weights and their sum of values, rescaled when the largest
changes. Scores are in base 2, because exp2 is what the hardware computes.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def capped(scores, cap):
    """``cap * tanh(scores / cap)``, with tanh from exp2: right for infinite scores too."""
    return cap * (1.0 - 2.0 / (tl.exp2(scores * (2.0 * LOG2_E / cap)) + 1.0))


@triton.jit
def all_or_less(index, LIMIT: tl.constexpr, PADDED: tl.constexpr):
    """``index < LIMIT``; a constant, which the compiler removes, where nothing is padded."""
    if LIMIT == PADDED:
        return tl.full([PADDED], True, tl.int1)
    else:
        return index < LIMIT


@triton.jit
def load_pages(table, start, end, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr):
    """Page ids of the keys ``start .. start + TILE - 1``, as far as they lie before ``end``.

    A tile inside one block has one page id, a scalar. A tile of several blocks loads one per key, the same for all
    keys of a block, so that pages of 16 tokens can still feed products of 64 keys.
    """
    if TILE <= BLOCK_SIZE:
        return tl.load(table + start // BLOCK_SIZE, mask=start < end, other=0)
    else:
        keys = start + tl.arange(0, TILE)
        return tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0)


@triton.jit
def slot_offsets(pages, start, strides, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr):
    """Pool offsets, int64, of a tile's keys and of their scales.

    strides: of a block, of a slot in it, of a block in the scales; in elements.
    """
    page = pages.to(tl.int64)
    if TILE <= BLOCK_SIZE:
        slot = start % BLOCK_SIZE + tl.arange(0, TILE)
    else:
        slot = tl.arange(0, TILE) % BLOCK_SIZE
    return page * strides[0] + slot * strides[1], page * strides[2] + slot


@triton.jit
def attend_tiles(
    state, q, pool, table, begin, end, low, high, positions, scale, softcap, strides,
    D: tl.constexpr, D_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, WINDOW: tl.constexpr,
    CAPPED: tl.constexpr, SCALED: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Bring the keys of tiles ``begin .. end`` (both multiples of TILE) into the running softmax.

    state: ``(largest [M], total [M], weighted [M, D_PAD])``, float32. q: ``[M, D_PAD]``. pool: pointers to this head's
    keys, values, key scales and value scales. positions: ``[M]``, of each row; -1 sees nothing. low, high: keys that
    some row sees lie in ``low .. high - 1``; other slots may hold NaN and are not read. scale: on ``q @ k``, in base 2
    unless CAPPED. MASKED False promises that every row sees every key of every tile.
    """
    largest, total, weighted = state
    key_pool, value_pool, key_scales, value_scales = pool
    dims, lanes = tl.arange(0, D_PAD), tl.arange(0, TILE)
    inside = all_or_less(dims, D, D_PAD)
    # Page ids are fetched one tile ahead by hand. Fetched in their own turn, they would make the compiler spend half
    # its pipeline stages on them, and leave keys and values one buffer: nothing in flight while a tile is computed.
    pages = load_pages(table, begin, end, BLOCK_SIZE, TILE)
    for start in range(begin, end, TILE):
        keys = start + lanes
        slots, scale_slots = slot_offsets(pages, start, strides, BLOCK_SIZE, TILE)
        pages = load_pages(table, start + TILE, end, BLOCK_SIZE, TILE)
        if MASKED:
            readable = (keys >= low) & (keys < high)
        else:
            readable = tl.full([TILE], True, tl.int1)
        k = tl.load(key_pool + slots[None, :] + dims[:, None], mask=inside[:, None] & readable[None, :], other=0.0)
        scores = tl.dot(q, k.to(q.dtype), input_precision=PRECISION) * scale
        if SCALED:
            scores *= tl.load(key_scales + scale_slots, mask=readable, other=0.0)[None, :]
        if CAPPED:
            scores = capped(scores, softcap) * LOG2_E
        if MASKED:
            seen = (keys[None, :] <= positions[:, None]) & readable[None, :]
            if WINDOW > 0:
                seen = seen & (positions[:, None] - keys[None, :] < WINDOW)
            scores = tl.where(seen, scores, -float("inf"))
        highest = tl.maximum(largest, tl.max(scores, axis=1))
        # A row that has seen nothing yet stays at -inf, where the difference of two infinities would be NaN.
        base = tl.where(highest == -float("inf"), 0.0, highest)
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(largest - base)
        total = total * shrink + tl.sum(weights, axis=1)
        if SCALED:
            weights *= tl.load(value_scales + scale_slots, mask=readable, other=0.0)[None, :]
        v = tl.load(value_pool + slots[:, None] + dims[None, :], mask=readable[:, None] & inside[None, :], other=0.0)
        product = tl.dot(weights.to(q.dtype), v.to(q.dtype), input_precision=PRECISION)
        weighted = weighted * shrink[:, None] + product
        largest = highest
    return largest, total, weighted


@triton.jit
def empty_state(ROWS: tl.constexpr, D_PAD: tl.constexpr):
    """The running softmax of rows that have seen nothing."""
    largest = tl.full([ROWS], -float("inf"), tl.float32)
    return largest, tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, D_PAD], tl.float32)


@triton.jit
def normalised(state):
    """Weighted mean of values ``[M, D_PAD]``; zero for a row that saw no key."""
    total = tl.where(state[1] > 0.0, state[1], 1.0)
    return state[2] / total[:, None]
