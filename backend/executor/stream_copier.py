"""Copies of whole blocks on the device's stream: each block is one contiguous piece, so each copy is one transfer."""

from __future__ import annotations

import time

from torch import Tensor

from backend.executor.device import Device
from backend.scheduler.plan import BlockCopies

_MEASURED = 8


class StreamCopier:
    """Moves blocks between the pool ``[num_blocks, ...]`` and page-locked host space ``[host slots, ...]``.

    Stream order makes it safe: what a later step writes to a block's old place, it writes after the copy has read it.
    """

    def __init__(self, device: Device, pool: Tensor, host: Tensor) -> None:
        self._device = device
        self._pool = pool
        self._host = host

    def run(self, copies: BlockCopies) -> None:
        """Put the copies on the stream, in the order out, in, within. Nobody waits for them."""
        _copy(self._pool, self._host, copies.to_host)
        _copy(self._host, self._pool, copies.from_host)
        _copy(self._pool, self._pool, copies.within)

    def seconds_per_block(self) -> float:
        """Measured time of one copy to the host; 0 without host space."""
        count = min(_MEASURED, self._host.shape[0], self._pool.shape[0] - 1)
        if not count:
            return 0.0
        pairs = [(n + 1, n) for n in range(count)]
        self._timed(pairs)  # the first use of anything costs more than any later one
        return self._timed(pairs) / count

    def _timed(self, pairs: list[tuple[int, int]]) -> float:
        self._device.synchronize()
        start = time.perf_counter()
        with self._device.stream():
            _copy(self._pool, self._host, pairs)
        self._device.synchronize()
        return time.perf_counter() - start


def _copy(source: Tensor, target: Tensor, pairs: list[tuple[int, int]]) -> None:
    for here, there in pairs:
        target[there].copy_(source[here], non_blocking=True)
