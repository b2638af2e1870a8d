"""The real scheduler, which also notes whom each preemption served: its own level or a more urgent one.

Decides nothing. It leans on four private methods of Scheduler; tests/simulation fails if they are renamed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from backend.request import Sequence
from backend.scheduler.draft import StepDraft
from backend.scheduler.scheduler import Scheduler

_NOBODY, _ADMISSION = 0, -1


class WatchedScheduler(Scheduler):
    """by_own, by_urgent: request id -> preemptions by its own level's growth (its own too), by a more urgent level."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.by_own: Counter[int] = Counter()
        self.by_urgent: Counter[int] = Counter()
        self._taker = _NOBODY  # the level that blocks are being taken for

    def _grow(self, growing: list[Sequence], draft: StepDraft) -> None:
        self._taker = _NOBODY
        super()._grow(growing, draft)

    def _make_room(self, sequence: Sequence, blocks: int, draft: StepDraft) -> bool:
        self._taker = sequence.request.level
        made = super()._make_room(sequence, blocks, draft)
        self._taker = _NOBODY  # who is preempted now yields itself
        return made

    def _take_from(self, victim: Sequence, level: int, draft: StepDraft) -> None:
        """Preempt a victim for one of ``level``."""
        self._taker = level
        self._preempt(victim, draft)
        self._taker = _NOBODY

    def _admit(self, now: float, draft: StepDraft) -> None:
        self._taker = _ADMISSION
        super()._admit(now, draft)

    def _preempt(self, sequence: Sequence, draft: StepDraft) -> None:
        super()._preempt(sequence, draft)
        urgent = self._taker == _ADMISSION or 0 < self._taker < sequence.request.level
        (self.by_urgent if urgent else self.by_own)[sequence.request.request_id] += 1
