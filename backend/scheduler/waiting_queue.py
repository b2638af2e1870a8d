"""Order among the waiting: level (raised with age), then fair share between tenants, then arrival.

One heap per (level, tenant), by arrival: a preempted sequence keeps its arrival and so its place. Only the heads of the
heaps compete, so a step looks at as many sequences as there are tenants, not at all that wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from backend.request import Sequence, State
from backend.scheduler.fair_share import Account, FairShare, account_of

Rank = tuple[int, float, float, int]


class WaitingQueue:
    """Waiting sequences. by_level: how many there are of each level that ever had one."""

    def __init__(self, shares: FairShare, ageing_seconds: float) -> None:
        self._shares = shares
        self._ageing_seconds = ageing_seconds
        self._heaps: dict[Account, list[tuple[int, Sequence]]] = {}
        self._size = 0
        self.by_level: dict[int, int] = {}

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Sequence]:
        """All waiting sequences, in no particular order."""
        return (s for heap in self._heaps.values() for _, s in heap if s.state is State.WAITING)

    def push(self, sequence: Sequence) -> None:
        """Add a waiting sequence; its place follows from level, tenant and arrival."""
        heap = self._heaps.setdefault(account_of(sequence), [])
        heapq.heappush(heap, (sequence.request.arrival, sequence))
        self._count(sequence, 1)

    def discard(self, sequence: Sequence) -> None:
        """A waiting sequence has ended. It is dropped from its heap when it comes up."""
        self._count(sequence, -1)

    def _count(self, sequence: Sequence, change: int) -> None:
        level = sequence.request.level
        self._size += change
        self.by_level[level] = self.by_level.get(level, 0) + change

    def take(self, sequence: Sequence) -> None:
        """Take a candidate out for good. It leaves its heap at once, for it may come back."""
        self.hide(sequence)
        self._count(sequence, -1)

    def hide(self, sequence: Sequence) -> None:
        """Take a head out of its heap for the rest of this pass, so that who stands behind it comes up."""
        _, head = heapq.heappop(self._heaps[account_of(sequence)])
        assert head is sequence

    def unhide(self, sequence: Sequence) -> None:
        """Put a hidden sequence back, if it still waits."""
        if sequence.state is State.WAITING:
            heap = self._heaps.setdefault(account_of(sequence), [])
            heapq.heappush(heap, (sequence.request.arrival, sequence))

    def candidates(self, now: float) -> Iterator[Sequence]:
        """The head of each tenant of each level, best first. Safe against changes of the queue while it runs."""
        heads = [head for account in list(self._heaps) if (head := self._head(account)) is not None]
        oldest: dict[int, float] = {}
        for head in heads:
            request = head.request
            oldest[request.level] = min(request.arrived, oldest.get(request.level, request.arrived))
        return iter(sorted(heads, key=lambda s: self._rank(s, oldest[s.request.level], now)))

    def most_urgent(self) -> int | None:
        """The most urgent level, ages aside, of which someone waits."""
        heads = (self._head(account) for account in list(self._heaps))
        return min((head.request.level for head in heads if head is not None), default=None)

    def _rank(self, sequence: Sequence, oldest: float, now: float) -> Rank:
        """Ageing raises a level as a whole, by its longest waiter, so that tenants within it still go by their shares.

        Shares of different levels do not compare: of two that have aged to the same order, the older goes first.
        """
        request = sequence.request
        level, waits = request.level, 0.0
        if self._ageing_seconds:
            level = max(1, level - int((now - oldest) / self._ageing_seconds))
            waits = oldest
        return level, waits, self._shares.of(sequence), request.arrival

    def _head(self, account: Account) -> Sequence | None:
        heap = self._heaps[account]
        while heap and heap[0][1].state is not State.WAITING:
            heapq.heappop(heap)
        if not heap:
            del self._heaps[account]
            return None
        return heap[0][1]
