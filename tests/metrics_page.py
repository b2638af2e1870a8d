"""A server's page of metrics, for tests."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable

from tests.server_fixture import RunningServer

LINE = re.compile(r"^([\w:]+){(.*)} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
PATIENCE = 20.0


class Page:
    """Series and their values. A difference of two pages is a page."""

    def __init__(self, series: dict[tuple[str, frozenset[tuple[str, str]]], float]) -> None:
        self.series = series

    @classmethod
    def of(cls, server: RunningServer) -> Page:
        text = urllib.request.urlopen(server.metrics_url, timeout=10).read().decode()
        return cls.parsed(text)

    @classmethod
    def parsed(cls, text: str) -> Page:
        return cls({(name, frozenset(LABEL.findall(labels))): float(v) for name, labels, v in LINE.findall(text)})

    def __sub__(self, before: Page) -> Page:
        return Page({key: value - before.series.get(key, 0.0) for key, value in self.series.items()})

    def value(self, name: str, **labels: str) -> float:
        """The sum of the family's series that have these labels, of which there must be one."""
        found = [v for (family, own), v in self.series.items() if family == name and own >= set(labels.items())]
        assert found, f"no series {name} with {labels}"
        return sum(found)

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Values of these labels -> value, where that is not 0."""
        return {
            tuple(dict(own)[label] for label in labels): value
            for (family, own), value in self.series.items()
            if family == name and value
        }

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.series}


def settled(server: RunningServer, figures: Callable[[Page], object], expected: object) -> object:
    """What the page says once it says what is expected, or after a while: it is published now and then."""
    deadline = time.monotonic() + PATIENCE
    while (found := figures(Page.of(server))) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def at_rest(server: RunningServer, seconds: float) -> Page:
    """The page once the engine's own families have said the same for so long, which is longer than its interval."""
    page, deadline = Page.of(server), time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        time.sleep(seconds)
        before, page = page, Page.of(server)
        if all(page.series[key] == value for key, value in before.series.items() if key[0].startswith("inflight_")):
            return page
    raise TimeoutError("the page does not come to rest")
