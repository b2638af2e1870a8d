"""Paged attention in plain torch: the oracle of every faster version."""

from itertools import pairwise

import torch
from torch import Tensor


def paged_attention(
    q: Tensor,
    pool: Tensor,
    layer: int,
    block_tables: Tensor,
    query_start: Tensor,
    kv_lengths: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> Tensor:
    """Attend each query row to its own sequence's keys, causally.

    Row ``i`` of sequence ``s``, which has ``n`` rows, stands at position ``kv_lengths[s] - n + i`` and sees
    the keys at positions ``0 ..`` that one; with a window, only keys ``j`` with ``position - j < window``.
    Query head ``h`` reads key head ``h // (Hq // Hkv)`` (grouped-query attention, arXiv:2305.13245).

    Args:
        q: ``[T, Hq, D]``, rows of all sequences one after another.
        pool: ``[num_blocks, num_layers, 2 (key, value), Hkv, block_size, D]``. Slots that no row sees may
            hold anything, NaN included.
        layer: which layer's part of the pool to read.
        block_tables: int32 ``[S, max_blocks]``; every entry is a valid block id, unused ones are 0.
        query_start: int32 ``[S + 1]``; sequence ``s`` owns rows ``query_start[s] .. query_start[s + 1] - 1``.
        kv_lengths: int32 ``[S]``, keys in the pool after this step's writes.
        scale: factor on ``q @ k``, before the cap.
        window: width of the sliding window in tokens, or None.
        softcap: ``c`` in ``c * tanh(score / c)``, or None.

    Returns:
        ``[T, Hq, D]`` in q's dtype; zeros in rows of no sequence and of sequences with no key.
    """
    output = torch.zeros_like(q)
    starts, lengths = query_start.tolist(), kv_lengths.tolist()
    for sequences in _groups(starts, lengths):
        # Each group's rows form a rectangle: many sequences of one row, or one sequence of many.
        rows = torch.tensor([list(range(starts[s], starts[s + 1])) for s in sequences], device=q.device)
        length = max(lengths[s] for s in sequences)
        tables = block_tables[sequences, : -(-length // pool.shape[4])]
        keys, values = (_gather(pool[:, layer, part], tables) for part in (0, 1))
        first = kv_lengths[sequences].long() - rows.shape[1]
        positions = first[:, None] + torch.arange(rows.shape[1], device=q.device)
        visible = _visible(positions, keys.shape[2], window)
        # A weight of 0 does not silence a NaN (0 * NaN is NaN), so what no row sees is made 0 in the copy.
        values.masked_fill_(~visible.any(dim=1)[:, None, :, None], 0.0)
        output[rows] = _attend(q[rows], keys, values, visible, scale, softcap).to(q.dtype)
    return output


def _groups(starts: list[int], lengths: list[int]) -> list[list[int]]:
    """Sequences to compute together: all with one row (decode) in one padded gather, every other alone."""
    rows = [end - start for start, end in pairwise(starts)]
    alone = [[s] for s, n in enumerate(rows) if n > 1 and lengths[s] > 0]
    single = [s for s, n in enumerate(rows) if n == 1 and lengths[s] > 0]
    return [*alone, single] if single else alone


def _gather(blocks: Tensor, tables: Tensor) -> Tensor:
    """Blocks ``[num_blocks, Hkv, block_size, D]`` -> ``[N, Hkv, L, D]`` float32, in order of position."""
    # Indexing block and head together puts heads before positions in the gather itself, with no second copy.
    heads = torch.arange(blocks.shape[1], device=blocks.device)
    return blocks[tables.long()[:, None], heads[:, None]].flatten(2, 3).float()


def _visible(positions: Tensor, num_keys: int, window: int | None) -> Tensor:
    """Which of ``num_keys`` keys each row sees: positions ``[N, n]`` -> bool ``[N, n, num_keys]``."""
    distance = positions[:, :, None] - torch.arange(num_keys, device=positions.device)
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)


def _attend(q: Tensor, keys: Tensor, values: Tensor, visible: Tensor, scale: float, softcap: float | None) -> Tensor:
    """Queries ``[N, n, Hq, D]`` over keys and values ``[N, Hkv, L, D]`` -> ``[N, n, Hq, D]`` float32."""
    (count, n, num_heads, size), num_kv_heads = q.shape, keys.shape[1]
    group = num_heads // num_kv_heads
    # The heads of a group become rows of one product, so that no key is copied once per query head.
    grouped = q.float().reshape(count, n, num_kv_heads, group, size).permute(0, 2, 3, 1, 4).flatten(2, 3)
    scores = grouped @ keys.transpose(-1, -2) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    weights = scores.masked_fill(~visible[:, None].repeat(1, 1, group, 1), -torch.inf).softmax(dim=-1)
    return (weights @ values).reshape(count, num_kv_heads, group, n, size).permute(0, 3, 1, 2, 4).flatten(2, 3)
