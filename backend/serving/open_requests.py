"""The requests that have not ended: found by their client's id or their key, and asked in rounds whether their client
cancelled.

Each such question is a round trip through one thread of the server's stub, so it is never asked per request and step: a
round asks a few, and the next round goes on where it stopped. With nothing open nobody is asked and nothing wakes.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

_log = logging.getLogger(__name__)
_AT_LEAST = 2  # asked in a round, where so many are open
_TURN_SECONDS = 1.0  # within which everyone is asked once, however many there are
_SELDOM_SECONDS = 5.0  # the same of those of whom another model asks


class _Sender(Protocol):
    def is_cancelled(self) -> bool: ...


class Watched(Protocol):
    """What is known of a request here: a ResponseStream, or an entry's call."""

    @property
    def ended(self) -> bool:
        """Whether its last response is on its way."""

    @property
    def sender(self) -> _Sender:
        """The way back to its client."""


class _Request(NamedTuple):
    client_id: str
    stream: Watched
    key: int
    seldom: bool


class OpenRequests:
    """cancel(request_id) is called for each request that is to end; calling it for one that has ended does no harm.

    Client ids may be empty (such a request cannot be stopped by id) or used several times (then all are stopped).
    """

    def __init__(self, cancel: Callable[[int], None], interval: float) -> None:
        """interval: seconds between rounds."""
        self._cancel = cancel
        self._interval = interval
        self._open: dict[int, _Request] = {}
        self._owed = 0.0  # questions to those that are asked seldom
        self._lock = threading.Lock()
        self._any = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cancel-watch", daemon=True)
        self._thread.start()

    def add(self, request_id: int, client_id: str, stream: Watched, key: int = 0, *, seldom: bool = False) -> None:
        """A request has been taken in. key: what stops it alone, where it has one; no client can guess another's.

        seldom: another model asks whether its client has gone.
        """
        with self._lock:
            self._open[request_id] = _Request(client_id, stream, key, seldom)
            self._any.set()

    def stop_client(self, client_id: str) -> None:
        """Cancel all requests of a client-side id."""
        self._stop_each(lambda request: bool(client_id) and request.client_id == client_id)

    def stop_key(self, key: int) -> None:
        """Cancel the request of this key."""
        self._stop_each(lambda request: bool(key) and request.key == key)

    def _stop_each(self, wanted: Callable[[_Request], bool]) -> None:
        with self._lock:
            found = [number for number, request in self._open.items() if wanted(request)]
        for request_id in found:
            self._cancel(request_id)

    @property
    def all_answered(self) -> bool:
        """Whether every request's last response is on its way."""
        with self._lock:
            return all(request.stream.ended for request in self._open.values())

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._stopping.set()
            self._any.set()
        self._thread.join()

    def _run(self) -> None:
        while self._any.wait() and not self._stopping.wait(self._interval):
            for request_id, request in self._next_few():
                if self._is_cancelled(request_id, request):
                    self._cancel(request_id)

    def _next_few(self) -> list[tuple[int, _Request]]:
        """Those that have waited longest to be asked; they go to the end of the line, unless they have ended."""
        with self._lock:
            ended = [number for number, request in self._open.items() if request.stream.ended]
            for number in ended:
                del self._open[number]
            if not self._open and not self._stopping.is_set():
                self._any.clear()
            few = self._often() + self._seldom()
            for number, request in few:
                del self._open[number]
                self._open[number] = request
        return few

    def _often(self) -> list[tuple[int, _Request]]:
        asked = [each for each in self._open.items() if not each[1].seldom]
        return asked[: max(_AT_LEAST, math.ceil(len(asked) * self._interval / _TURN_SECONDS))]

    def _seldom(self) -> list[tuple[int, _Request]]:
        asked = [each for each in self._open.items() if each[1].seldom]
        self._owed += len(asked) * self._interval / _SELDOM_SECONDS
        number = int(self._owed)
        self._owed -= number
        return asked[:number]

    def _is_cancelled(self, request_id: int, request: _Request) -> bool:
        try:
            return request.stream.sender.is_cancelled()
        except Exception as error:  # one that ended in between cannot be asked; the watch goes on
            _log.debug("request %d could not be asked: %s", request_id, error)
            return False
