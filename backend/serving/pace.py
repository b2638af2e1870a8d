"""Pace: when the streams are sent what they have, where each response takes time from the engine.

With no GPU the engine computes on the cores that Triton Server, its processes and often the client need for every
response, some milliseconds of one; and while one of the engine's threads has to wait for its core, the others wait for
it. So there the streams are sent to together, and less often the more there are: neighbours in a burst share the
waking of all those threads, and the number of responses in a second stays the same however many streams are open.
"""

from __future__ import annotations


class Pace:
    """Says after a step whether it is time. Not for use by two threads at a time."""

    def __init__(self, seconds_per_stream: float) -> None:
        """seconds_per_stream: from one time to the next there pass so many for each open stream; 0 = every step."""
        self._per_stream = seconds_per_stream
        self._last = float("-inf")

    def due(self, now: float, num_streams: int) -> bool:
        """Whether all are to be sent what they have; if so, that was this time. now: in seconds."""
        if now - self._last < self._per_stream * num_streams:
            return False
        self._last = now
        return True
