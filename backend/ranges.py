"""The one check of a number against its range."""

from __future__ import annotations

import math

from backend.errors import InvalidRequest


def within(name: str, value: float, low: float, high: float, low_allowed: bool = True) -> None:
    """Raise InvalidRequest, naming field, value and range, unless low <= value <= high; NaN never is."""
    fits = low <= value <= high if low_allowed else low < value <= high
    if math.isnan(value) or not fits:
        raise InvalidRequest(name, f"{value} is out of range, allowed is {'[' if low_allowed else '('}{low}, {high}]")
