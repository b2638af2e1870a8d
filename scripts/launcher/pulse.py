"""Whether the engine's process still runs: it writes a file now and then (backend/serving/heartbeat.py).

A dead process is seen by stubs.py. This one sees a process that lives and does nothing: stopped by a signal, or held
for ever by one thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

LONGEST_LOOK_SECONDS = 1.0


class _Beat(NamedTuple):
    moment: int
    limit: float


class Pulse:
    """Follows the file ``alive`` in `directory`. No file, nobody missed: the model is not loaded, or has no limit."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = directory / "alive"
        self._clock = clock
        self._beat: _Beat | None = None
        self._silence = 0.0
        self._looked = clock()

    def lost(self) -> float:
        """Seconds of silence, once they are as many as the file names; else 0. To be called several times a second.

        Time in which this process itself did not run, as on a machine that was suspended, is no silence.
        """
        now = self._clock()
        waited, self._looked = min(now - self._looked, LONGEST_LOOK_SECONDS), now
        beat = self._read()
        if beat is None or beat != self._beat:
            self._beat, self._silence = beat, 0.0
            return 0.0
        self._silence += waited
        return self._silence if self._silence >= beat.limit else 0.0

    def _read(self) -> _Beat | None:
        try:
            return _Beat(self._file.stat().st_mtime_ns, float(self._file.read_text()))
        except (OSError, ValueError):
            return None
