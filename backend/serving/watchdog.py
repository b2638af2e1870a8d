"""Notices an engine that makes no progress although it has work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_LATE_LOOKS = 2
"""A look that comes later than after so many intervals comes late since nothing ran."""


class Watchdog:
    """Calls on_stuck once if ``beats`` stands still for ``limit`` seconds while ``busy`` is true.

    Seconds in which this process itself did not run, as on a machine that was suspended, are not among them.

    beats: a number that changes with every round of the engine's thread. A limit of 0 means never. on_look: called at
    every look, so that somebody can watch the watchdog.
    """

    def __init__(
        self,
        *,
        beats: Callable[[], int],
        busy: Callable[[], bool],
        on_stuck: Callable[[], None],
        limit: float,
        on_look: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._beats = beats
        self._busy = busy
        self._on_stuck = on_stuck
        self._limit = limit
        self._on_look = on_look
        self._clock = clock
        self._interval = min(1.0, limit / 4)
        self._beat, self._looked, self._still = beats(), clock(), 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch, if there is a limit; the first look is now, as what is to be missed must have been seen."""
        if self._limit:
            self._on_look()
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def stuck(self) -> bool:
        """Look once."""
        beat, now = self._beats(), self._clock()
        waited, self._looked = min(now - self._looked, _LATE_LOOKS * self._interval), now
        self._still = self._still + waited if beat == self._beat and self._busy() else 0.0
        self._beat = beat
        return self._still >= self._limit

    def _run(self) -> None:
        while not self._stopping.wait(self._interval):
            self._on_look()
            if self.stuck():
                self._on_stuck()
                return
