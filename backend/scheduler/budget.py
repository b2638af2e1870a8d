"""What one step may still spend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StepBudget:
    """Tokens that this step may still compute."""

    tokens: int

    def take(self, wanted: int) -> int:
        """Grant as many of ``wanted`` tokens as are left; 0 when nothing is."""
        granted = min(wanted, self.tokens)
        self.tokens -= granted
        return granted
