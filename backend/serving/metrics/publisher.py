"""Publisher: carries what has changed to the server every so often, in a thread of its own.

Each changed value is a round trip to the server. The engine's thread has no part in it: it writes numbers that are read
here, at worst in the midst of a step.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from backend.serving.metrics.family import Family, Kind, Labels, Series, Source, Value, series_of

_log = logging.getLogger(__name__)
_LONGEST_END_SECONDS = 5.0


class Cadence(NamedTuple):
    """How often to publish: every ``seconds``, but while ``busy()`` only after ``busy_seconds``.

    A hundred round trips wake as many threads of the server, on the cores that a CPU's engine computes on.
    """

    seconds: float
    busy_seconds: float = 0.0
    busy: Callable[[], bool] = lambda: False


class Metric(Protocol):
    """One series of the server's page; what an engine of the same name has left there stays."""

    def increment(self, value: float) -> None:
        """Add to it. Raises an exception if the server does not take it."""


class MetricsPage(Protocol):
    """The server's page of metrics."""

    def metric(self, family: str, kind: Kind, meaning: str, labels: Labels) -> Metric:
        """A new series. Raises an exception if the server keeps no metrics."""


class Publisher:
    """Publishes families. Without any it does nothing.

    Gauges are published as differences, too: Triton Server's ``set`` keeps Python's lock during the round trip, and so
    the engine's thread from running; ``increment`` does not. The next engine of the same name, when the model is
    loaded anew, then adds its own to the same gauges and counters.
    """

    def __init__(self, families: Sequence[Family], source: Source, page: MetricsPage, cadence: Cadence) -> None:
        """cadence: of publications."""
        self._families = families
        self._source = source
        self._page = page
        self._cadence = cadence
        self._metrics: dict[tuple[str, Labels], Metric] = {}
        self._published: dict[tuple[str, Labels], float] = {}
        self._read: dict[tuple[str, tuple[str, ...]], Value] = {}  # so that what stands still costs one comparison
        self._gauges: set[tuple[str, Labels]] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Publish all as it is, so that each series is there from the beginning; then what changes, now and then."""
        if self._families and self._try_to_publish():
            self._thread.start()

    def close(self) -> None:
        """Publish a last time, once the engine has ended, and take the engine's share of each gauge back."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_LONGEST_END_SECONDS)
            if not self._thread.is_alive():
                self._try_to_publish(last=True)

    def publish(self) -> None:
        """Publish what has changed since the last time. Not for two threads at a time."""
        for family in self._families:
            for values, value in family.read(self._source):
                key = family.name, values
                if self._read.get(key) != value:
                    for series in series_of(family, values, value):
                        self._update(series)
                    self._read[key] = value

    def _update(self, series: Series) -> None:
        key = series.family, series.labels
        metric = self._metrics.get(key)
        if metric is None:
            metric = self._page.metric(series.family, series.kind, series.meaning, series.labels)
            self._metrics[key], self._published[key] = metric, 0.0
            if series.kind is Kind.GAUGE:
                self._gauges.add(key)
        difference = series.value - self._published[key]
        if difference:
            metric.increment(difference)
            self._published[key] = series.value

    def _take_gauges_back(self) -> None:
        for key in self._gauges:
            if self._published[key]:
                self._metrics[key].increment(-self._published[key])
                self._published[key] = 0.0

    def _try_to_publish(self, last: bool = False) -> bool:
        """False if the server refuses: whoever serves without metrics serves all the same."""
        try:
            self.publish()
            if last:
                self._take_gauges_back()
        except Exception as error:
            _log.warning("metrics are not published any more: %s", error)
            return False
        return True

    def _run(self) -> None:
        published = time.monotonic()
        while not self._stopping.wait(self._cadence.seconds):
            if self._cadence.busy() and time.monotonic() - published < self._cadence.busy_seconds:
                continue
            published = time.monotonic()
            if not self._try_to_publish():
                return
