"""StepPlan: the frozen decision of one step."""

from __future__ import annotations

from typing import NamedTuple

from backend.request import Sequence


class Work(NamedTuple):
    """Compute ``num_tokens`` tokens of ``sequence`` from position ``start`` on.

    samples: the chunk reaches the last known token, so its last row's logits give the next one.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool


class StepPlan(NamedTuple):
    """What one step computes. ``step`` numbers the steps from 1 and is the step's fence."""

    step: int
    work: tuple[Work, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(work.num_tokens for work in self.work)


class TokenOutput(NamedTuple):
    """One sequence's new token, and why it ended with it (None: it goes on)."""

    sequence: Sequence
    token: int
    finished: bool
