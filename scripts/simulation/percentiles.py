"""Percentiles by nearest rank: always a value that was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of them do not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else math.nan


def weighted_percentile(counts: Mapping[float, int], percent: float) -> float:
    """The same of value -> how often."""
    rank = math.ceil(sum(counts.values()) * percent / 100)
    for value in sorted(counts):
        rank -= counts[value]
        if rank <= 0:
            return value
    return math.nan
