"""One request, timed as its client sees it, and told to Locust.

Figures (type `figure`): `ttft level N` in ms; `inter-token level N` in ms, one per response, the time since the
response before it divided by its tokens; `tokens/s level N`, one per answer, of the tokens after the first response.
The request itself has its door as type: `request level N` with its whole time and its tokens, or `abandoned level N`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .asks import Ask
from .doors.base import Door, DoorError

FIGURE = "figure"

Report = Callable[..., Any]
"""Locust's events.request.fire."""


@dataclass
class Times:
    """What was seen of one answer; seconds on the clock of `began`; moments: of each response, with its tokens."""

    began: float
    first: float | None = None
    tokens: int = 0
    moments: list[tuple[float, int]] = field(default_factory=list)
    left: bool = False

    def saw(self, text: str, tokens: int, now: float) -> None:
        """Take in a response."""
        if self.first is None and (text or tokens):
            self.first = now
        if tokens:
            self.tokens += tokens
            self.moments.append((now, tokens))

    def gaps(self) -> list[float]:
        """Seconds per token of each response but the first."""
        return [
            (now - before) / tokens for (before, _), (now, tokens) in zip(self.moments, self.moments[1:], strict=False)
        ]

    def speed(self) -> float | None:
        """Tokens per second after the first response, whose tokens took the prompt's time; None with one response."""
        if len(self.moments) < 2:
            return None
        return (self.tokens - self.moments[0][1]) / (self.moments[-1][0] - self.moments[0][0])


def run(
    door: Door,
    ask: Ask,
    report: Report,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Times:
    """Send one request and report it; a failure is reported, not raised."""
    times = Times(began=clock())
    failure: DoorError | None = None
    try:
        _read(door, ask, times, clock, sleep)
    except DoorError as error:
        failure = error
    ended = clock()
    if not (failure or times.left) and times.tokens != ask.tokens:
        failure = DoorError(f"an answer of {ask.tokens} tokens was asked for, but another number came")
    name = f"{'abandoned' if times.left else 'request'} level {ask.level}"
    _tell(report, door.name, name, (ended - times.began) * 1000, times.tokens, failure)
    _tell_figures(door, ask, times, report)
    return times


def _read(door: Door, ask: Ask, times: Times, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
    with contextlib.closing(door.stream(ask)) as pieces:
        for count, (text, tokens) in enumerate(pieces, start=1):
            times.saw(text, tokens, clock())
            if ask.leaves_after is not None and count >= ask.leaves_after:
                times.left = True
                return
            if ask.read_seconds:
                sleep(ask.read_seconds)


def _tell_figures(door: Door, ask: Ask, times: Times, report: Report) -> None:
    if times.first is not None:
        _tell(report, FIGURE, f"ttft level {ask.level}", (times.first - times.began) * 1000)
    # What lies between the responses of a slow reader is the reader's own time.
    if ask.read_seconds or not door.counts_pieces:
        return
    for gap in times.gaps():
        _tell(report, FIGURE, f"inter-token level {ask.level}", gap * 1000)
    if speed := times.speed():
        _tell(report, FIGURE, f"tokens/s level {ask.level}", speed)


def _tell(
    report: Report, kind: str, name: str, value: float, tokens: int = 0, failure: DoorError | None = None
) -> None:
    report(request_type=kind, name=name, response_time=value, response_length=tokens, exception=failure, context={})
