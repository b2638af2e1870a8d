"""Copies of whole blocks: pool to host, host to pool, pool to pool. One block is one contiguous piece."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from backend.scheduler.plan import BlockCopies


class BlockCopier:
    """Moves blocks between the pool ``[num_blocks, ...]`` and host space ``[host slots, ...]`` of the same shape."""

    def __init__(self, pool: Tensor, host: Tensor) -> None:
        self._pool = pool
        self._host = host

    def run(self, copies: BlockCopies) -> None:
        """Carry the copies out, in the order out, in, within."""
        _copy(self._pool, self._host, copies.to_host)
        _copy(self._host, self._pool, copies.from_host)
        _copy(self._pool, self._pool, copies.within)

    def seconds_per_block(self) -> float:
        """Measured time of one copy between pool and host; 0 without host space."""
        count = min(8, self._host.shape[0], self._pool.shape[0] - 1)
        if not count:
            return 0.0
        pairs = [(n + 1, n) for n in range(count)]
        _copy(self._pool, self._host, pairs)  # the first touch of a page costs more than any later one
        start = time.perf_counter()
        _copy(self._pool, self._host, pairs)
        return (time.perf_counter() - start) / count


def _copy(source: Tensor, target: Tensor, pairs: list[tuple[int, int]]) -> None:
    if not pairs:
        return
    sources, targets = zip(*pairs, strict=True)
    target[torch.tensor(targets)] = source[torch.tensor(sources)]
