"""The gate between Triton Server's queue and the engine: how fast execute() takes requests in.

Triton Server orders, bounds and refuses only what stands in its own queue, and it hands requests over as fast as
execute() returns. So execute() returns slowly once the engine holds as many waiting requests as it can look ahead over:
then the backlog stands in the server's queue. But the request that a blocked execute() holds cannot be overtaken, and
an urgent one behind it cannot be seen. So the gate never closes: beyond the look-ahead it lets one request through per
interval, and an urgent late-comer, first in the server's queue, is here within two intervals. Beyond the bound the
interval is a hundred times longer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BEYOND_BOUND = 100


class Gate:
    """held: how many requests the engine holds waiting, asked anew whenever ``notify`` says it may have changed."""

    def __init__(
        self,
        held: Callable[[], int],
        *,
        lookahead: int,
        bound: int,
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._held = held
        self._lookahead = lookahead
        self._bound = bound
        self._interval = interval
        self._clock = clock
        self._changed = threading.Condition()
        self._open = False

    def pause(self) -> None:
        """Return when the next request may come in."""
        start = self._clock()
        with self._changed:
            while not self._open and (left := start + self._patience() - self._clock()) > 0:
                self._changed.wait(left)

    def _patience(self) -> float:
        """Seconds to keep the door shut, by what is held now."""
        held = self._held()
        if held < self._lookahead:
            return 0.0
        return self._interval * (1 if held < self._bound else _BEYOND_BOUND)

    def notify(self) -> None:
        """What is held may have changed."""
        with self._changed:
            self._changed.notify()

    def release(self) -> None:
        """Let everything through from now on: the engine is ending and will refuse it."""
        with self._changed:
            self._open = True
            self._changed.notify()
