"""What taking a sequence's blocks away costs: to compute them again, or to copy them out and in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PreemptionMode = Literal["auto", "recompute", "swap"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PreemptionCosts:
    """Measured at load. seconds_per_token: prefill. seconds_per_block: one copy of one block between pool and host."""

    seconds_per_token: float
    seconds_per_block: float
    mode: PreemptionMode = "auto"

    def recompute(self, num_tokens: int) -> float:
        """Seconds to compute so many tokens again."""
        return num_tokens * self.seconds_per_token

    def swap(self, num_blocks: int) -> float:
        """Seconds to copy so many blocks out and in again."""
        return 2 * num_blocks * self.seconds_per_block

    def prefers_swap(self, num_tokens: int, num_blocks: int) -> bool:
        """Whether a sequence with so many tokens in so many blocks is better swapped than computed again."""
        if self.mode == "auto":
            return self.swap(num_blocks) < self.recompute(num_tokens)
        return self.mode == "swap"

    def loss(self, num_tokens: int, num_blocks: int) -> float:
        """Seconds that a preemption throws away, by the better way."""
        return min(self.recompute(num_tokens), self.swap(num_blocks))
