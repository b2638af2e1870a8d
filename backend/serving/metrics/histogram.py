"""Histogram: how often values fell into which bucket. One thread observes, any thread reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Reading(NamedTuple):
    """What a histogram held at a moment. bounds: upper, inclusive. counts: of each bucket alone; one more, beyond all.

    A reading may be made in the midst of an observation; then the sum is that value behind the counts, or before them.
    """

    bounds: tuple[float, ...]
    counts: list[int]
    sum: float

    @property
    def total(self) -> int:
        """Values observed."""
        return sum(self.counts)

    def at(self, bounds: tuple[float, ...]) -> Reading:
        """The same values by fewer bounds. Raises ValueError at a bound that is none of the reading's own."""
        counts = [0] * (len(bounds) + 1)
        places = {bound: place for place, bound in enumerate(self.bounds)}
        if not places.keys() >= set(bounds):
            raise ValueError(f"bounds {sorted(set(bounds) - places.keys())} are not among {self.bounds}")
        for place, count in enumerate(self.counts):
            upper = self.bounds[place] if place < len(self.bounds) else float("inf")
            counts[bisect_left(bounds, upper)] += count
        return Reading(bounds, counts, self.sum)

    def cumulative(self) -> list[tuple[str, int]]:
        """(``le``, values up to it) of each bucket, as Prometheus wants them; the last is ``+Inf``."""
        total, found = 0, []
        for bound, count in zip([*(f"{b:g}" for b in self.bounds), "+Inf"], self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found


class Histogram:
    """Counts values by upper bounds (ascending)."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def read(self) -> Reading:
        """What it holds now."""
        return Reading(self._bounds, self._counts.copy(), self._sum)


def together(readings: Iterable[Reading]) -> Reading:
    """Several readings of the same bounds as one."""
    each = list(readings)
    counts = [sum(column) for column in zip(*(reading.counts for reading in each), strict=True)]
    return Reading(each[0].bounds, counts, sum(reading.sum for reading in each))


def one_two_five(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 ... up to ``limit``, and to 1000 at least."""
    bounds, ten = [], 1
    while ten <= max(limit, 1000):
        bounds += [step * ten for step in (1, 2, 5)]
        ten *= 10
    return tuple(float(bound) for bound in bounds if bound <= max(limit, 1000))
