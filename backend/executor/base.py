"""What the engine asks of an executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from backend.scheduler.plan import StepPlan

StepResult = Mapping[int, int]
"""Request id -> the token sampled for it in the step."""


class StepHandle(Protocol):
    """A step under way."""

    def collect(self) -> StepResult:
        """Wait until the step has finished and return its tokens. Raises what the step raised."""


class Executor(Protocol):
    """Turns a StepPlan into tokens."""

    def launch(self, plan: StepPlan) -> StepHandle:
        """Begin the step. May return before it has finished; the plan's sequences must not shrink meanwhile."""
