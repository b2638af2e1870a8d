"""Batches with random keys and values in a pool, for checks and measurements."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """One layer's pool, and what attention is given."""

    q: Tensor
    pool: Tensor
    tables: Tensor
    query_start: Tensor
    kv_lengths: Tensor

    def arguments(self, window: int | None = None, softcap: float | None = None) -> tuple[object, ...]:
        """In the order of ``paged_attention``."""
        scale = self.q.shape[2] ** -0.5
        return (self.q, self.pool, 0, self.tables, self.query_start, self.kv_lengths, scale, window, softcap)


def make_batch(
    shapes: list[tuple[int, int]],
    device: torch.device,
    *,
    heads: int = 32,
    kv_heads: int = 8,
    size: int = 128,
    block_size: int = 16,
    dtype: torch.dtype = torch.bfloat16,
) -> Batch:
    """Sequences of (query rows, keys), their blocks shuffled; slots that none of them owns are NaN."""
    counts = [-(-length // block_size) for _, length in shapes]
    pool = torch.randn(sum(counts) + 1, 1, 2, kv_heads, block_size, size, device=device, dtype=dtype)
    ids = torch.randperm(sum(counts), device=device).int() + 1
    tables = torch.zeros(len(shapes), max(counts), dtype=torch.int32, device=device)
    begins = [0, *accumulate(counts)]
    for s, (_, length) in enumerate(shapes):
        tables[s, : counts[s]] = ids[begins[s] : begins[s + 1]]
        pool[tables[s, counts[s] - 1].long(), :, :, :, (length - 1) % block_size + 1 :] = torch.nan
    rows = [n for n, _ in shapes]
    return Batch(
        q=torch.randn(sum(rows), heads, size, device=device, dtype=dtype),
        pool=pool,
        tables=tables,
        query_start=torch.tensor([0, *accumulate(rows)], dtype=torch.int32, device=device),
        kv_lengths=torch.tensor([length for _, length in shapes], dtype=torch.int32, device=device),
    )
