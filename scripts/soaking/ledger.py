"""Every request of the clients, from its sending to its one end."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


class Outcome(enum.StrEnum):
    """As its client saw it."""

    WHOLE = "whole"
    """All tokens that were asked for, and the final marker."""
    LEFT = "left"
    """The client left, as it meant to."""
    FAILED = "failed"
    """An error; `detail` has its words."""


@dataclass
class Record:
    """One request; moments on the ledger's clock. phase: of the run, when it was sent."""

    number: int
    kind: str
    door: str
    level: int
    phase: str
    began: float
    ended: float | None = None
    outcome: Outcome | None = None
    detail: str = ""


class Ledger:
    """Written by many threads. `twice`: numbers of requests whose end was told again after they had ended."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.phase = ""
        self.twice: list[int] = []
        self._records: list[Record] = []
        self._lock = threading.Lock()

    def begin(self, kind: str, door: str, level: int) -> Record:
        """A request is about to be sent."""
        with self._lock:
            record = Record(len(self._records), kind, door, level, self.phase, self.clock())
            self._records.append(record)
        return record

    def end(self, record: Record, outcome: Outcome, detail: str = "") -> None:
        """It has ended."""
        with self._lock:
            if record.outcome is not None:
                self.twice.append(record.number)
                return
            record.outcome, record.detail, record.ended = outcome, detail, self.clock()

    def records(self) -> list[Record]:
        """All so far, in the order of their sending."""
        with self._lock:
            return list(self._records)

    @property
    def num_open(self) -> int:
        """Requests that have not ended."""
        return sum(record.outcome is None for record in self.records())
