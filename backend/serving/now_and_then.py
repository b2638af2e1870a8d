"""Something to be done for each of many keys, but not every time that one comes by."""

from __future__ import annotations

import time
from collections.abc import Callable


class NowAndThen:
    """Says when it is a key's turn: the first time, and then once in ``interval`` seconds.

    Beyond ``_MOST`` keys, those whose turn is over are forgotten.
    """

    _MOST = 1024

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._turns: dict[int, float] = {}  # the last turn of each key, oldest first

    def due(self, key: int) -> bool:
        """Whether it is the key's turn; if so, it has had it."""
        now = self._clock()
        if now - self._turns.get(key, float("-inf")) < self._interval:
            return False
        self._turns.pop(key, None)
        self._turns[key] = now
        if len(self._turns) > self._MOST:
            self._turns = {key: turn for key, turn in self._turns.items() if now - turn < self._interval}
        return True
