"""vLLM's rule (`schedule` of its V1 scheduler, policies "priority" and "fcfs"), on this project's pool and queues.

Running sequences come first. One that needs a block while none is free takes it from the running sequence with the
largest (level, arrival), which may be itself; the victim is computed again. Waiting ones, in the order of their levels,
get what is left of the step's tokens, if their whole prompt fits, and only in a step that preempted nobody.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from backend.request import Sequence
from backend.scheduler.draft import StepDraft
from backend.scheduler.plan import StepPlan
from scripts.simulation.watched_scheduler import WatchedScheduler


class VllmRule(WatchedScheduler):
    """To be set up without preemption by the waiting, reserve, cap, ageing, step-time target and host pool."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._preempted_before = 0

    def schedule(self, now: float = 0.0) -> StepPlan:
        """One step."""
        self._preempted_before = self.population.num_preemptions
        return super().schedule(now)

    def _make_room(self, sequence: Sequence, blocks: int, draft: StepDraft) -> bool:
        while self.residency.available(sequence) < blocks:
            victim = max(self.population.running, key=attrgetter("order"))
            if victim is sequence:
                return False  # the caller preempts it
            self._take_from(victim, sequence.request.level, draft)
        return True

    def _admit(self, now: float, draft: StepDraft) -> None:
        if self.population.num_preemptions == self._preempted_before:
            super()._admit(now, draft)
