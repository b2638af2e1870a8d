"""BeamTextWatch: whether a beam's text holds a stop string. A beam that goes on in several ways forks it."""

from __future__ import annotations

from collections.abc import Iterable

from backend.text.stop_strings import StopStrings
from backend.text.token_bytes import TokenBytes


class BeamTextWatch:
    """Sees what a TextStream of the same stop strings would see."""

    def __init__(self, token_bytes: TokenBytes, stops: StopStrings, min_tokens: int) -> None:
        """min_tokens: a stop string counts only where it begins after so many tokens."""
        self._token_bytes = token_bytes
        self._stops = stops
        self._unwatched = min_tokens

    @classmethod
    def of(cls, token_bytes: TokenBytes, stop_strings: Iterable[str], min_tokens: int) -> BeamTextWatch:
        """At the beginning of the output."""
        return cls(token_bytes, StopStrings(stop_strings), min_tokens)

    def fork(self) -> BeamTextWatch:
        """One that stands where this one does."""
        return BeamTextWatch(self._token_bytes, self._stops.fork(), self._unwatched)

    def push(self, token_id: int) -> bool:
        """Take the next generated token; True when the text now holds a stop string."""
        if self._unwatched:
            self._unwatched -= 1
            return False
        return self._stops.push(self._token_bytes.join((token_id,))) is not None
