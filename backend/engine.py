"""Engine: the whole life of a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from backend.executor.base import Executor
from backend.request import FinishReason, Request, Sequence
from backend.scheduler.plan import StepPlan, TokenOutput
from backend.scheduler.scheduler import Scheduler


class StepTrace(NamedTuple):
    """What a step did, for whoever watches: the plan, its seconds, and the tokens it gave."""

    plan: StepPlan
    started: float
    seconds: float
    outputs: list[TokenOutput]


class StepFailedError(RuntimeError):
    """A step raised. ``sequences`` are those it touched; they have been ended and their blocks freed."""

    def __init__(self, sequences: list[Sequence]) -> None:
        super().__init__("the engine step failed")
        self.sequences = sequences


class Engine:
    """In-flight batching over one scheduler and one executor. Not thread-safe: one thread calls everything here."""

    def __init__(
        self, scheduler: Scheduler, executor: Executor, watch: Callable[[StepTrace], None] = lambda trace: None
    ) -> None:
        self.scheduler = scheduler
        self._executor = executor
        self._watch = watch

    @property
    def has_work(self) -> bool:
        """Whether ``step`` would find anything to do."""
        return self.scheduler.has_work

    def add(self, request: Request) -> Sequence:
        """Queue a request; it may join at the next step. Raises InvalidRequest if it could never run."""
        return self.scheduler.add(request)

    def cancel(self, sequence: Sequence) -> bool:
        """End a sequence now, in any state; False if it had ended before."""
        return self.scheduler.end(sequence, FinishReason.CANCELLED)

    def step(self) -> list[TokenOutput]:
        """Plan, compute, commit: one token for each sequence whose chunk was its last, and who ended with it.

        Raises StepFailedError if the computation does; the other sequences can go on with the next step.
        """
        started = time.perf_counter()
        plan = self.scheduler.schedule()
        if not plan.work:
            return []
        try:
            tokens = self._executor.launch(plan).collect()
        except Exception as error:
            raise StepFailedError(self._fail(plan)) from error
        outputs = self.scheduler.commit(plan, tokens)
        self._watch(StepTrace(plan, started, time.perf_counter() - started, outputs))
        return outputs

    def check_idle(self) -> None:
        """Raise PoolIntegrityError if blocks are missing although nothing is under way."""
        self.scheduler.pool.check_empty()

    def _fail(self, plan: StepPlan) -> list[Sequence]:
        self.scheduler.pool.complete(plan.step)
        touched = [work.sequence for work in plan.work]
        return [sequence for sequence in touched if self.scheduler.end(sequence, FinishReason.ERROR)]
