"""Something to be done for each of many keys, but not every time that one comes by."""

from __future__ import annotations

import time
from collections.abc import Callable


class NowAndThen:
    """Says when it is a key's turn: the first time, and then once in ``interval`` seconds.

    A key is forgotten as soon as its turn is over, so those that are gone take no room.
    """

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._turns: dict[int, float] = {}  # when each began that is not over; oldest first

    def due(self, key: int) -> bool:
        """Whether it is the key's turn; if so, it has had it."""
        now = self._clock()
        while self._turns and now - self._turns[oldest := next(iter(self._turns))] >= self._interval:
            del self._turns[oldest]
        if key in self._turns:
            return False
        self._turns[key] = now
        return True
