"""Has Triton Server look at a model's queue once more after requests have come in, as at times it forgets to.

The server's thread that fills batches looks whether an instance is free when it is told that one has finished, which is
some microseconds before that one is free. Where it was too quick it looks again after half a second, or when the next
request comes (read in triton-inference-server/core, dynamic_batch_scheduler.cc; seen with 2.51, where of 16 requests at
once most had to wait for that). So a little while after a client's request has been executed, and no other, one of this
model's own is made. It finds nothing to do, but with it the server looks, and hands over what had stood there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)
REQUEST_ID = "wake-the-queue"
"""Of the requests that only wake."""
QUIET_SECONDS = 0.01
"""Without an execution, after which whatever the server would have handed over by itself has come."""
_MAX_OPEN = 4
"""Wakes that have not been executed; each holds one of the threads in which the server carries a model's requests."""


class QueueWaker:
    """``executing`` is of the one thread in which Triton Server calls execute()."""

    def __init__(
        self,
        wake: Callable[[], None],
        times: int,
        *,
        quiet: float = QUIET_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """wake: makes the request and returns when it has been executed; called in a thread of its own.

        times: how often after clients' last, for the first may go ahead of less urgent ones and leave them standing.
        """
        self._wake = wake
        self._times = times
        self._quiet = quiet
        self._clock = clock
        self._changed = threading.Condition()
        self._executing = False
        self._wakes_left = 0
        self._due = 0.0
        self._closed = False
        self._room = threading.Semaphore(_MAX_OPEN)
        self._thread = threading.Thread(target=self._run, name="queue-waker", daemon=True)
        self._thread.start()

    @contextmanager
    def executing(self, *, for_clients: bool) -> Iterator[None]:
        """Around an execution. for_clients: whether there is more in it than wakes."""
        self._executing = True
        try:
            yield
        finally:
            with self._changed:
                self._executing = False
                if for_clients:
                    self._due = self._clock() + self._quiet
                    if not self._wakes_left:  # else it waits for the quiet, and sees by itself that there is none yet
                        self._changed.notify()
                    self._wakes_left = self._times

    def close(self) -> None:
        """Wake no more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._wait_for_quiet():
            if self._room.acquire(blocking=False):
                threading.Thread(target=self._wake_once, name="wake", daemon=True).start()

    def _wait_for_quiet(self) -> bool:
        """Until it is time to wake; False when closed."""
        with self._changed:
            while not self._closed:
                if not self._wakes_left:
                    self._changed.wait()
                elif self._executing:
                    self._changed.wait(self._quiet)
                elif (left := self._due - self._clock()) > 0:
                    self._changed.wait(left)
                else:
                    self._wakes_left -= 1
                    self._due = self._clock() + self._quiet
                    return True
            return False

    def _wake_once(self) -> None:
        try:
            self._wake()
        except Exception as error:  # the model is being unloaded
            _log.debug("the queue could not be woken: %s", error)
        finally:
            self._room.release()
