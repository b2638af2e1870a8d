"""StepTime: how long a step takes, learnt from the steps themselves.

seconds = a + b * tokens, by least squares over the recent past (each step's weight fades by one per cent with every
later one), so that a chunk can be cut to fit a target.
"""

from __future__ import annotations

_FADE = 0.99
_ENOUGH = 8


class StepTime:
    """The model of one executor. Means and covariances are kept as fading sums."""

    def __init__(self) -> None:
        self._steps = 0
        self._w = self._x = self._y = self._xx = self._xy = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Learn from a finished step."""
        self._steps += 1
        self._w = self._w * _FADE + 1.0
        self._x = self._x * _FADE + num_tokens
        self._y = self._y * _FADE + seconds
        self._xx = self._xx * _FADE + num_tokens * num_tokens
        self._xy = self._xy * _FADE + num_tokens * seconds

    def predict(self, num_tokens: int) -> float:
        """Seconds that a step of so many tokens is expected to take."""
        slope, base = self._line()
        return base + slope * num_tokens

    def tokens_within(self, seconds: float) -> int | None:
        """Tokens that a step can compute within so many seconds; None while too little is known to say."""
        if self._steps < _ENOUGH:
            return None
        slope, base = self._line()
        return int(max(0.0, seconds - base) / slope) if slope > 0 else None

    def _line(self) -> tuple[float, float]:
        """(slope, base), neither negative: time grows with tokens, and no step is free."""
        if not self._w:
            return 0.0, 0.0
        variance = self._xx * self._w - self._x * self._x
        slope = (self._xy * self._w - self._x * self._y) / variance if variance > 1e-9 * self._xx * self._w else 0.0
        slope = max(0.0, slope)
        base = (self._y - slope * self._x) / self._w
        return (slope, base) if base >= 0 else (self._xy / self._xx, 0.0)
