"""Family: a name under which Prometheus finds values; and how a histogram becomes families of counters.

The Python backend takes one value per round trip to the server. A histogram of its own kind would cost one for each
observed value, so each is published as what Prometheus keeps of one anyway: counters named ``_bucket``, ``_sum`` and
``_count``, which many observations change at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from backend.scheduler.scheduler import Scheduler
from backend.serving.metrics.counts import EngineCounts
from backend.serving.metrics.histogram import Reading

Value = float | Reading
Labels = tuple[tuple[str, str], ...]


class Kind(enum.StrEnum):
    """What Prometheus takes a family for."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Source(NamedTuple):
    """Where the values come from. num_held: requests taken in that have no slot."""

    counts: EngineCounts
    scheduler: Scheduler
    num_held: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Family:
    """labels: beyond ``model`` and ``version``. read: (values of the labels, value) of each series, Readings where the
    kind is a histogram. Called from the publisher's thread while the engine runs.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    read: Callable[[Source], Iterable[tuple[tuple[str, ...], Value]]]

    @classmethod
    def single(cls, name: str, kind: Kind, meaning: str, value: Callable[[Source], Value]) -> Family:
        """One without labels of its own, so of one series."""
        return cls(name, kind, (), meaning, lambda source: [((), value(source))])


class Series(NamedTuple):
    """One line of the page: a counter's or a gauge's value. family, meaning: name and help of the family it is in."""

    family: str
    kind: Kind
    meaning: str
    labels: Labels
    value: float


def series_of(family: Family, values: tuple[str, ...], value: Value) -> Iterator[Series]:
    """The lines on the page that one value read of a family makes. values: of the family's labels."""
    labels = tuple(zip(family.labels, values, strict=True))
    if not isinstance(value, Reading):
        yield Series(family.name, family.kind, family.meaning, labels, value)
        return
    for le, count in value.cumulative():
        name = f"{family.name}_bucket"
        yield Series(name, Kind.COUNTER, family.meaning, (*labels, ("le", le)), count)
    yield Series(f"{family.name}_sum", Kind.COUNTER, family.meaning, labels, value.sum)
    yield Series(f"{family.name}_count", Kind.COUNTER, family.meaning, labels, value.total)
