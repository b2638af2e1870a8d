"""One server after another: each that dies after it was ready is followed by the next, on the same ports.

    ready ──> dies ──> ended, nothing left ──> pause ──> started ──> ready again
                                                 │
                                                 └── too many in a row: given up, with the last one's words

A server that has never been ready is not started again: what is wrong with it would be wrong the next time, too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from .errors import LaunchError, LeftoversError
from .ports import Ports

POLL_SECONDS = 0.1
MOST_RESTARTS = 5
"""In a row, that is with less than STABLE_SECONDS of readiness between them."""
STABLE_SECONDS = 60.0
LONGEST_PAUSE = 30.0


class Life(AbstractContextManager["Life"], Protocol):
    """What is asked of a server: launcher.server.Server says what each does."""

    ports: Ports

    def wait_ready(self, stop: Callable[[], bool]) -> bool:
        """Until it serves."""

    def check(self) -> None:
        """Raise LaunchError when it has died."""

    def stop(self, hurry: Callable[[], bool], patient: bool = False) -> bool:
        """End it."""


class Wish(Protocol):
    """The wish to end; launcher.stop_signal.StopSignal."""

    def requested(self) -> bool:
        """Whether there is one."""

    def patient(self) -> bool:
        """Whether open requests may finish."""

    def urgent(self) -> bool:
        """Whether there is no time."""


def pause_before(restart: int) -> float:
    """Seconds to wait before the n-th restart in a row: none before the first, then 1, 2, 4 ..."""
    return min(2.0 ** (restart - 2), LONGEST_PAUSE) if restart > 1 else 0.0


class Supervisor:
    """Serves until an end is asked for.

    make: a server that has not been entered; its argument is the ports of the one before it, None for the first.
    announce: called with the first server once it is ready. restarts: False ends at the first failure.
    """

    def __init__(
        self,
        make: Callable[[Ports | None], Life],
        wish: Wish,
        announce: Callable[[Life], None],
        *,
        restarts: bool = True,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._make = make
        self._wish = wish
        self._announce = announce
        self._restarts = restarts
        self._clock = clock
        self._sleep = sleep
        self._ports: Ports | None = None
        self._in_a_row = 0
        self._ready_at: float | None = None
        self._failed_at = 0.0

    def run(self) -> None:
        """Return when an end was asked for and has come about. Raises LaunchError when there is nothing more to try."""
        while True:
            try:
                self._serve()
            except LeftoversError:
                raise
            except LaunchError as error:
                self._pause(error)
            # Without a failure the end was asked for; with one, it may have been meanwhile.
            if self._wish.requested():
                return

    def _serve(self) -> None:
        """One server's life. Raises LaunchError when it has failed; by then it is gone."""
        began = self._clock()
        with self._make(self._ports) as server:
            failure = self._failure(server, began)
            if failure is None:
                _tell("ending the server (Ctrl-C again: at once)")
            if not server.stop(self._wish.urgent, self._wish.patient()):
                raise LeftoversError("some of the server's processes could not be ended") from failure
        if failure is not None:
            raise failure

    def _failure(self, server: Life, began: float) -> LaunchError | None:
        """What ended the server, None when an end is asked for."""
        try:
            if server.wait_ready(self._wish.requested):
                self._ready(server, began)
                while not self._wish.requested():
                    server.check()
                    self._sleep(POLL_SECONDS)
        except LaunchError as error:
            self._failed_at = self._clock()
            return error
        return None

    def _ready(self, server: Life, began: float) -> None:
        self._ready_at = self._clock()
        if self._ports is None:
            self._ports = server.ports
            self._announce(server)
        else:
            _tell(f"ready again in {self._ready_at - began:.1f} s")

    def _pause(self, error: LaunchError) -> None:
        """Wait before the next start. Raises `error`, or one that says so, if there is to be none."""
        if self._ports is None or not self._restarts:
            raise error
        if self._ready_at is not None and self._failed_at - self._ready_at >= STABLE_SECONDS:
            self._in_a_row = 0
        self._ready_at = None
        self._in_a_row += 1
        if self._in_a_row > MOST_RESTARTS:
            raise LaunchError(f"given up after {MOST_RESTARTS} restarts in a row: {error}", error.exit_code)
        pause = pause_before(self._in_a_row)
        when = f"in {pause:.0f} s" if pause else "now"
        _tell(f"{error}; starting the server again {when} (restart {self._in_a_row} of {MOST_RESTARTS} in a row)")
        until = self._clock() + pause
        while self._clock() < until and not self._wish.requested():
            self._sleep(POLL_SECONDS)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
