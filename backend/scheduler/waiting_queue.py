"""Order among the waiting: level first, then arrival."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from backend.request import Sequence


class WaitingQueue:
    """A heap of waiting sequences. Removal is by mark, so that it costs nothing until the mark comes up."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, int], Sequence]] = []
        self._members: set[int] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for _, sequence in sorted(self._heap) if sequence.request.request_id in self._members)

    def push(self, sequence: Sequence) -> None:
        """Add a sequence; its order is fixed by its level and arrival."""
        heapq.heappush(self._heap, (sequence.order, sequence))
        self._members.add(sequence.request.request_id)

    def head(self) -> Sequence | None:
        """The next to be admitted, or None."""
        while self._heap and self._heap[0][1].request.request_id not in self._members:
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def pop(self) -> Sequence:
        """Take the head out. Raises IndexError when empty."""
        sequence = self.head()
        if sequence is None:
            raise IndexError("pop from an empty waiting queue")
        heapq.heappop(self._heap)
        self._members.remove(sequence.request.request_id)
        return sequence

    def remove(self, sequence: Sequence) -> bool:
        """Take a sequence out wherever it stands; False if it is not here."""
        if sequence.request.request_id not in self._members:
            return False
        self._members.remove(sequence.request.request_id)
        return True
