"""Scrape: a server's page of metrics at one moment, and what happened between two of them."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: \d+)?$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_COUNTERS = ("_total", "_bucket", "_sum", "_count")
_OWN = "inflight_"
TIMEOUT_SECONDS = 5.0

Key = tuple[str, frozenset[tuple[str, str]]]


class Unreachable(Exception):
    """There is no page; the message is one line for whoever asked."""


class Scrape(NamedTuple):
    """Values of the series of one model, by name and labels. at: seconds on a steady clock."""

    at: float
    values: dict[Key, float]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the family's series that have these labels; 0 if there are none."""
        wanted = set(labels.items())
        return sum(value for (family, own), value in self.values.items() if family == name and own >= wanted)

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Values of these labels -> the sum of their series."""
        found: dict[tuple[str, ...], float] = {}
        for (family, own), value in self.values.items():
            if family == name:
                key = tuple(dict(own).get(label, "") for label in labels)
                found[key] = found.get(key, 0.0) + value
        return found

    @property
    def has_engine(self) -> bool:
        """Whether the page shows this project's engine at all."""
        return any(name.startswith(_OWN) for name, _ in self.values)


def parse(text: str, model: str, at: float) -> Scrape:
    """Read a page in Prometheus' text format; series of other models are left out."""
    return Scrape(at, dict(_series(text, model)))


def _series(text: str, model: str) -> Iterator[tuple[Key, float]]:
    for line in _LINE.finditer(text):
        labels = frozenset((name, _ESCAPED.sub(_meant, value)) for name, value in _LABEL.findall(line["labels"] or ""))
        if dict(labels).get("model") == model:
            yield (line["name"], labels), float(line["value"])


def _meant(escaped: re.Match[str]) -> str:
    return {"n": "\n"}.get(escaped[1], escaped[1])


def fetch(url: str) -> str:
    """The page's text. Raises Unreachable."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # past any proxy that the environment names
    try:
        with opener.open(url, timeout=TIMEOUT_SECONDS) as response:
            return str(response.read().decode(errors="replace"))
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Unreachable(f"{url} cannot be read: {reason}") from error


def difference(before: Scrape, after: Scrape) -> Scrape:
    """What the counters grew by. ``at`` is the seconds between.

    Where one of them has shrunk the server began anew, and all count from 0.
    """
    old = {} if began_anew(before, after) else before.values
    grown = {key: value - old.get(key, 0.0) for key, value in after.values.items() if is_counter(key[0])}
    return Scrape(after.at - before.at, grown)


def began_anew(before: Scrape, after: Scrape) -> bool:
    """Whether a counter has shrunk, or has gone."""
    known = after.values
    return any(is_counter(key[0]) and known.get(key, 0.0) < value for key, value in before.values.items())


def is_counter(name: str) -> bool:
    """Whether a family of the engine's only grows while the engine lives."""
    return name.startswith(_OWN) and name.endswith(_COUNTERS)
