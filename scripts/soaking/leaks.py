"""Whether something grows: the slope of a series, and what may be."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

Point = tuple[float, float]
"""Seconds, value."""

SHORTEST_SLOPE_SECONDS = 300.0


class Growth(NamedTuple):
    """From the first point to the last. per_minute: the median slope of all pairs (Theil 1950, Sen 1968)."""

    first: float
    last: float
    per_minute: float
    seconds: float


def growth(points: Sequence[Point]) -> Growth:
    """How a series grows; a single odd value moves it little. Raises ValueError with fewer than two moments."""
    slopes = [(b - a) / (t - s) for (s, a), (t, b) in combinations(points, 2) if t > s]
    if not slopes:
        raise ValueError(f"{len(points)} points have no slope")
    return Growth(points[0][1], points[-1][1], statistics.median(slopes) * 60, points[-1][0] - points[0][0])


def leak(points: Sequence[Point], per_minute: float, at_once: float) -> str:
    """What is wrong with a series, empty if nothing.

    per_minute: more than this is a leak, if the series is long enough to say so. at_once: in a shorter one, how much it
    may grow in all.
    """
    try:
        found = growth(points)
    except ValueError as error:
        return f"not watched: {error}"
    if found.seconds >= SHORTEST_SLOPE_SECONDS:
        return f"grows by {found.per_minute:.2f} a minute" if found.per_minute > per_minute else ""
    grown = found.last - found.first
    return f"grew by {grown:.1f} in {found.seconds:.0f} s" if grown > at_once else ""
