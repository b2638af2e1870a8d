"""Pace: when the streams are sent what they have, where each response takes time from the engine.

With no GPU the engine computes on the cores that Triton Server, its processes and often the client need for every
response, some milliseconds of one; and while one of the engine's threads has to wait for its core, the others wait for
it. So there the streams are sent to together, and less often the more there are: neighbours in a burst share the
waking of all those threads, and the number of responses in a second stays the same however many streams are open.
Less urgent streams do not make more urgent ones wait.
"""

from __future__ import annotations

from collections.abc import Mapping


class Pace:
    """Says after a step whose time it is. Not for use by two threads at a time."""

    def __init__(self, seconds_per_stream: float) -> None:
        """seconds_per_stream: between two times of a level, for each stream of it or of more urgent ones; 0 = none."""
        self._per_stream = seconds_per_stream
        self._last: dict[int, float] = {}

    def due(self, now: float, streams: Mapping[int, int]) -> int:
        """The level down to which all streams are to be sent what they have, that being their time; 0 = of none.

        now: in seconds. streams: how many there are, by level, of which 1 is the most urgent.
        """
        found, ahead = 0, 0
        for level in sorted(streams):
            ahead += streams[level]
            if now - self._last.get(level, float("-inf")) >= self._per_stream * ahead:
                found = level
        for level in streams:
            if level <= found:
                self._last[level] = now
        return found
