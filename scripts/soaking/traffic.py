"""The clients: threads that each send one request after the other, of every kind, through both doors."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from random import Random

from loadtests import asks, measure
from loadtests.doors.base import Door
from loadtests.doors.grpc_door import GrpcDoor
from loadtests.doors.http_door import HttpDoor
from loadtests.profiles import Kind

from .ledger import Ledger, Outcome, Record

PAUSE_AFTER_FAILURE_SECONDS = 0.5
FLOOD_SECONDS = 120.0
CLIENT_FAILED = "the client failed"
BAD = "too long"
BAD_FIELD = "max_tokens"
"""Of requests of the kind BAD, which no server may take."""

KINDS = {
    "urgent": Kind(level=1, share=3, words=(8, 24), tokens=(4, 16)),
    "usual": Kind(level=2, share=4, words=(8, 60), tokens=(16, 64)),
    "long": Kind(level=3, share=2, words=(60, 200), tokens=(32, 128)),
    "leaves": Kind(level=2, share=2, words=(8, 60), tokens=(64, 128), abandons=1.0, leaves_after=(1, 12)),
    "leaves low": Kind(level=3, share=1, words=(60, 200), tokens=(64, 128), abandons=1.0, leaves_after=(1, 12)),
    "reads slowly": Kind(level=2, share=1, words=(8, 60), tokens=(16, 32), read_seconds=0.3),
    BAD: Kind(level=3, share=1, words=(4, 8), tokens=(10**6, 10**6)),
}


class Traffic:
    """Clients that can be held and let go again. `url`, `http_url`: where the server is, which stays the same."""

    def __init__(self, ledger: Ledger, url: str, http_url: str, seed: int, clients: int) -> None:
        self._ledger = ledger
        self._doors: tuple[Callable[[], Door], ...] = (lambda: GrpcDoor(url), lambda: HttpDoor(http_url))
        self._seed = seed
        self._go, self._over = threading.Event(), threading.Event()
        self._floods = 0
        self._threads = [self._client(f"{number}", self._keep_asking) for number in range(clients)]

    def start(self) -> None:
        """Begin, held."""
        for thread in self._threads:
            thread.start()

    def go(self) -> None:
        """Send requests."""
        self._go.set()

    def hold(self) -> None:
        """Send no further request; those under way go on."""
        self._go.clear()

    def flood(self, requests: int) -> None:
        """So many clients more, with one short request each; returns when all have ended, or after a long while."""
        self._floods += 1
        crowd = [self._client(f"flood {self._floods}/{number}", self._ask_once) for number in range(requests)]
        for thread in crowd:
            thread.start()
        deadline = time.monotonic() + FLOOD_SECONDS
        for thread in crowd:
            thread.join(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """No further request; threads whose request never ends are left to themselves."""
        self._over.set()
        self._go.set()

    def _client(self, name: str, work: Callable[[Random], None]) -> threading.Thread:
        return threading.Thread(target=work, args=(Random(f"{self._seed}/{name}"),), name=name, daemon=True)

    def _keep_asking(self, random: Random) -> None:
        while self._go.wait() and not self._over.is_set():
            name = random.choices(list(KINDS), [kind.share for kind in KINDS.values()])[0]
            record = self._ask(name, KINDS[name], random)
            if record.outcome is Outcome.FAILED and name != BAD:
                time.sleep(PAUSE_AFTER_FAILURE_SECONDS)

    def _ask_once(self, random: Random) -> None:
        self._ask("urgent", KINDS["urgent"], random)

    def _ask(self, name: str, kind: Kind, random: Random) -> Record:
        # A connection for each request: one that has seen a server die waits before it tries again.
        door, ask = random.choice(self._doors)(), asks.draw(kind, random)
        record = self._ledger.begin(name, door.name, ask.level)
        failures: list[BaseException] = []

        def report(request_type: str, exception: BaseException | None, **_: object) -> None:
            if request_type == door.name and exception:
                failures.append(exception)

        try:
            left = measure.run(door, ask, report).left
        except Exception as error:  # no DoorError: the answer could not be read, which nothing excuses
            self._ledger.end(record, Outcome.FAILED, f"{CLIENT_FAILED}: {error!r}")
            return record
        finally:
            _close(door)
        outcome = Outcome.FAILED if failures else Outcome.LEFT if left else Outcome.WHOLE
        self._ledger.end(record, outcome, " ".join(str(failure) for failure in failures))
        return record


def _close(door: Door) -> None:
    with contextlib.suppress(Exception):
        if isinstance(door, GrpcDoor):
            door.close()
