"""Figures: what is shown, from the scrapes of the last minute or so."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import pairwise
from typing import NamedTuple

from scripts.live_view.scrape import Scrape, began_anew, difference

KEPT = 60
"""Scrapes that are kept: that many less one are the longest line of the past."""


class Latency(NamedTuple):
    """Of one histogram and level. mean, p95: seconds over all that is kept; line: the mean of each interval; None where
    nothing was observed.
    """

    mean: float | None
    p95: float | None
    line: list[float | None]


class Figures(NamedTuple):
    """One frame's worth. Rates are per second over the last interval; without one, None.

    waiting: by level. preempted: (level, mode) -> since the engine's start. generated: tokens/s by level.
    """

    slots: int
    running: int
    used: int
    cached: int
    free: int
    waiting: dict[str, int]
    swapped: int
    at_server: int
    preempted: dict[tuple[str, str], int]
    steps: float | None
    batch: float | None
    step_tokens: float | None
    prompt_tokens: float | None
    generated: dict[str, float | None]
    ended: float | None
    first_token: dict[str, Latency]
    gap: dict[str, Latency]


class History:
    """Scrapes one after another. When the server began anew, what was before is forgotten."""

    def __init__(self) -> None:
        self._scrapes: deque[Scrape] = deque(maxlen=KEPT)
        self.num_restarts = 0

    def add(self, scrape: Scrape) -> None:
        """The newest."""
        if self._scrapes and began_anew(self._scrapes[-1], scrape):
            self._scrapes.clear()
            self.num_restarts += 1
        self._scrapes.append(scrape)

    @property
    def newest(self) -> Scrape | None:
        """None before the first."""
        return self._scrapes[-1] if self._scrapes else None

    def figures(self) -> Figures:
        """At least one scrape must be there."""
        now, intervals = self._scrapes[-1], [difference(*pair) for pair in pairwise(self._scrapes)]
        last = intervals[-1] if intervals else None
        levels = sorted({level for (level,) in now.by("inflight_generated_tokens_total", "level")})

        def gauge(name: str, **labels: str) -> int:
            return round(now.value(name, **labels))

        return Figures(
            slots=gauge("inflight_slots"),
            running=gauge("inflight_running_sequences"),
            used=gauge("inflight_pool_blocks_used"),
            cached=gauge("inflight_pool_blocks_cached"),
            free=gauge("inflight_pool_blocks_free"),
            waiting={level: gauge("inflight_waiting_level_sequences", level=level) for level in levels},
            swapped=gauge("inflight_swapped_sequences"),
            at_server=gauge("nv_inference_pending_request_count"),
            preempted={
                (level, mode): round(n)
                for (level, mode), n in now.by("inflight_preemptions_total", "level", "mode").items()
            },
            steps=_rate(last, "inflight_steps_total"),
            batch=_ratio(last, "inflight_step_sequences_total", "inflight_steps_total"),
            step_tokens=_ratio(last, "inflight_step_tokens_total", "inflight_steps_total"),
            prompt_tokens=_rate(last, "inflight_prompt_tokens_total"),
            generated={level: _rate(last, "inflight_generated_tokens_total", level=level) for level in levels},
            ended=_rate(last, "inflight_requests_total"),
            first_token={level: _latency(intervals, "inflight_time_to_first_token_seconds", level) for level in levels},
            gap={level: _latency(intervals, "inflight_inter_token_seconds", level) for level in levels},
        )


def _rate(interval: Scrape | None, name: str, **labels: str) -> float | None:
    return interval.value(name, **labels) / interval.at if interval and interval.at > 0 else None


def _ratio(interval: Scrape | None, name: str, by: str) -> float | None:
    count = interval.value(by) if interval else 0.0
    return interval.value(name) / count if interval and count else None


def _latency(intervals: list[Scrape], name: str, level: str) -> Latency:
    each = [(i.value(f"{name}_sum", level=level), i.value(f"{name}_count", level=level)) for i in intervals]
    total, count = (sum(column) for column in zip(*each, strict=True)) if each else (0.0, 0.0)
    buckets: dict[float, float] = {}
    for interval in intervals:
        for (le, own), cumulative in interval.by(f"{name}_bucket", "le", "level").items():
            if own == level:
                buckets[float(le)] = buckets.get(float(le), 0.0) + cumulative
    return Latency(
        mean=total / count if count else None,
        p95=quantile(buckets, 0.95),
        line=[own_sum / own_count if own_count else None for own_sum, own_count in each],
    )


def quantile(buckets: dict[float, float], share: float) -> float | None:
    """The value below which a share of the observations lies, as Prometheus' histogram_quantile has it.

    buckets: upper bound -> observations up to it, the last bound infinite. None if there are none.
    """
    bounds = sorted(buckets)
    counts = [buckets[bound] for bound in bounds]
    if not counts or not counts[-1]:
        return None
    rank = share * counts[-1]
    place = bisect_left(counts, rank)
    if place == len(bounds) - 1:
        return bounds[-2] if len(bounds) > 1 else None
    low, below = (bounds[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    return low + (bounds[place] - low) * (rank - below) / (counts[place] - below)
