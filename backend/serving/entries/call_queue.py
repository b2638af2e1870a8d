"""CallQueue: the requests that an entry has taken in and not yet passed on to the engine, most urgent first.

A request to another model holds a thread of Triton Server's until its first response comes, of the 32 that also carry
this model's own responses. So only a few calls may be in that state at a time; the rest wait here, in the order of
their level and arrival, and not in the engine's queue, where a request made by a model has no priority.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from typing import Protocol

from backend.errors import QueueFullError

_log = logging.getLogger(__name__)
MAX_STARTING = 16


class Call(Protocol):
    """One request to the engine, run in a thread of its own."""

    def run(self, started: threading.Event) -> None:
        """Make the request and pass its responses on, to the end. started: to be set when the first one has come."""

    @property
    def abandoned(self) -> bool:
        """Whether it ended before it was run."""


class CallQueue:
    """put() returns at once. At most ``max_starting`` calls wait for their first response at any time."""

    def __init__(self, max_waiting: int, max_starting: int = MAX_STARTING) -> None:
        self._max_waiting = max_waiting
        self._permits = threading.Semaphore(max_starting)
        self._changed = threading.Condition()
        self._heap: list[tuple[int, int, Call]] = []
        self._numbers = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._dispatch, name="calls", daemon=True)
        self._thread.start()

    def put(self, level: int, calls: list[Call]) -> None:
        """Have calls run, all or none. Raises QueueFullError, with the limit, if there is no room for them."""
        with self._changed:
            waiting = sum(not call.abandoned for *_, call in self._heap)
            if waiting and waiting + len(calls) > self._max_waiting:
                raise QueueFullError(f"Exceeds maximum queue size: {waiting} wait, at most {self._max_waiting} may")
            for call in calls:
                heapq.heappush(self._heap, (level, next(self._numbers), call))
            self._changed.notify()

    def close(self) -> None:
        """Start nothing from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._permits.release()
        self._thread.join()

    def _dispatch(self) -> None:
        while True:
            # The permit first: whoever is the most urgent when a place becomes free gets it.
            self._permits.acquire()
            call = self._next()
            if call is None:
                return
            threading.Thread(target=self._run, args=(call,), name="call", daemon=True).start()

    def _next(self) -> Call | None:
        with self._changed:
            while True:
                while self._heap and self._heap[0][2].abandoned:
                    heapq.heappop(self._heap)
                if self._closed:
                    return None
                if self._heap:
                    return heapq.heappop(self._heap)[2]
                self._changed.wait()

    def _run(self, call: Call) -> None:
        started = _Permit(self._permits)
        try:
            call.run(started)
        except Exception:
            _log.exception("a call to the engine failed")
        finally:
            started.set()


class _Permit(threading.Event):
    """Gives its place back the first time that it is set."""

    def __init__(self, permits: threading.Semaphore) -> None:
        super().__init__()
        self._permits = permits

    def set(self) -> None:
        if not self.is_set():
            super().set()
            self._permits.release()
