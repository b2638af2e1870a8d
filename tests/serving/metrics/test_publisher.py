"""What the publisher hands to the server, and when."""

import threading
from typing import Any

import pytest

from backend.serving.metrics.family import Family, Kind, Labels
from backend.serving.metrics.publisher import Cadence, Publisher

PATIENCE = 20.0


class Server:
    """A page of metrics as Triton Server keeps it. ``broken``: it takes nothing."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, Labels], float] = {}
        self.calls: list[tuple[str, float]] = []
        self.changed = threading.Event()
        self.broken = False

    def metric(self, family: str, kind: Kind, meaning: str, labels: Labels) -> Any:
        if self.broken:
            raise RuntimeError("metrics are disabled")
        self.values[family, labels] = 0.0
        return _Metric(self, family, kind, labels)


class _Metric:
    def __init__(self, server: Server, family: str, kind: Kind, labels: Labels) -> None:
        self._server, self._key, self._kind = server, (family, labels), kind

    def increment(self, value: float) -> None:
        if self._server.broken:
            raise RuntimeError("the server has gone")
        if self._kind is Kind.COUNTER and value < 0:
            raise ValueError("a counter goes up")
        self._server.values[self._key] += value
        self._server.calls.append((self._key[0], value))
        self._server.changed.set()


@pytest.fixture
def values() -> dict[str, float]:
    return {"ended_total": 3, "running": 2}


def publisher(
    server: Server, values: dict[str, float], interval: float = 3600.0, cadence: Cadence | None = None
) -> Publisher:
    families = [
        Family("ended_total", Kind.COUNTER, (), "Ended.", lambda source: [((), values["ended_total"])]),
        Family("running", Kind.GAUGE, ("by",), "Running.", lambda source: [(("x",), values["running"])]),
    ]
    return Publisher(families, None, server, cadence or Cadence(interval))  # type: ignore[arg-type]


def test_only_what_has_changed_is_handed_over_and_as_a_difference(values: dict[str, float]) -> None:
    server = Server()
    made = publisher(server, values)
    made.publish()
    made.publish()
    values["running"] = 1
    made.publish()
    values["ended_total"] = 7
    made.publish()
    assert server.calls == [("ended_total", 3), ("running", 2), ("running", -1), ("ended_total", 4)]
    assert server.values == {("ended_total", ()): 7, ("running", (("by", "x"),)): 1}


def test_a_series_is_there_before_it_has_a_value() -> None:
    server = Server()
    publisher(server, {"ended_total": 0, "running": 0}).publish()
    assert set(server.values.values()) == {0.0}
    assert server.calls == []


def test_changes_are_published_by_themselves_and_the_last_ones_at_the_end(values: dict[str, float]) -> None:
    server = Server()
    made = publisher(server, values, interval=0.01)
    made.start()
    server.changed.clear()
    values["ended_total"] = 5
    assert server.changed.wait(PATIENCE)
    made.close()
    assert server.values["running", (("by", "x"),)] == 0, "an engine that has gone has no share in a gauge"

    server = Server()
    made = publisher(server, values)
    made.start()
    values["ended_total"] = 11
    made.close()
    assert server.values["ended_total", ()] == 11


def test_while_the_engine_is_busy_publications_are_put_off_but_not_for_ever(values: dict[str, float]) -> None:
    looks = 0

    def busy() -> bool:
        nonlocal looks
        looks += 1
        if looks == 10:
            server.changed.set()
        return looks <= 10

    server = Server()
    made = publisher(server, values, cadence=Cadence(0.01, 3600.0, busy))
    made.start()
    server.changed.clear()
    server.calls.clear()
    values["ended_total"] = 5
    assert server.changed.wait(PATIENCE)
    assert server.calls == [], "busy: put off"
    server.changed.clear()
    assert server.changed.wait(PATIENCE)
    assert server.calls == [("ended_total", 2)], "at rest again: published"
    made.close()

    server = Server()
    made = publisher(server, values, cadence=Cadence(0.01, 0.02, lambda: True))
    made.start()
    server.changed.clear()
    values["ended_total"] = 6
    assert server.changed.wait(PATIENCE), "busy all the time: published now and then"
    made.close()


def test_a_server_without_metrics_is_served_all_the_same(
    values: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    server.broken = True
    made = publisher(server, values)
    made.start()
    made.close()
    assert [record.message for record in caplog.records] == ["metrics are not published any more: metrics are disabled"]


def test_a_server_that_stops_to_take_values_is_told_of_once(
    values: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    made = publisher(server, values, interval=0.01)
    made.start()
    server.broken = True
    values["ended_total"] = 5
    made._thread.join(PATIENCE)
    made.close()
    assert len(caplog.records) == 1


def test_without_families_nothing_is_asked_of_the_server() -> None:
    server = Server()
    server.broken = True
    made = Publisher((), None, server, Cadence(0.01))  # type: ignore[arg-type]
    made.start()
    made.close()
    assert server.values == {}
