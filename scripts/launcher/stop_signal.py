"""The wish to end, as signals bring it."""

from __future__ import annotations

import signal


class StopSignal:
    """Counts SIGINT, SIGTERM and SIGHUP from its creation on, in place of their usual effect.

    The first asks for an orderly end, the second for an immediate one. Only the main thread may create it.
    """

    def __init__(self) -> None:
        self._count = 0
        self._first = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._received)

    def requested(self) -> bool:
        """Whether the process was asked to end."""
        return self._count > 0

    def patient(self) -> bool:
        """Whether open requests are to be given time to finish: a supervisor's SIGTERM, not somebody at a terminal."""
        return self._first == signal.SIGTERM

    def urgent(self) -> bool:
        """Whether it was asked again, by someone who does not want to wait."""
        return self._count > 1

    def _received(self, number: int, _frame: object) -> None:
        self._first = self._first or number
        self._count += 1
