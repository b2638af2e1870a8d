"""The clock: steps follow one another as in Engine.step with overlap, each as long as the platform says.

::

    now ──step n──> now'
                    finished(n)   what it touched may be reused
                    schedule(n+1) with who arrived during step n
                    commit(n)     its tokens are known at now'
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

from backend.scheduler.plan import StepPlan
from backend.scheduler.scheduler import Scheduler
from scripts.simulation.hardware import BLOCK_SIZE, Platform
from scripts.simulation.measurements import Measurements
from scripts.simulation.policies import Policy
from scripts.simulation.workload import Job, Mix

_NO_TOKEN = 0
"""Sampled every time: nothing looks at it, sequences end by length."""


class StuckError(RuntimeError):
    """Requests wait, nothing runs, and nothing more will come."""


class Simulator:
    """One run: all jobs through one scheduler, on a clock that begins at 0 and stands at ``now``."""

    def __init__(
        self, scheduler: Scheduler, platform: Platform, jobs: list[Job], watch: Measurements, mix: Mix, policy: Policy
    ) -> None:
        """jobs: by arrival."""
        self.now = 0.0
        self.watch = watch
        self._scheduler, self._platform = scheduler, platform
        self._jobs, self._mix, self._policy = jobs, mix, policy
        self._next = 0
        self._done: StepPlan | None = None

    def run(self, on_ended: Callable[[int], object] = lambda count: None) -> None:
        """Until every request has ended. on_ended(count) after each step. Raises StuckError."""
        while self._next < len(self._jobs) or self._scheduler.has_work or self._done is not None:
            self._take_arrivals()
            plan = self._scheduler.schedule(self.now)
            seconds = self._begin(plan)
            on_ended(self._commit())
            if not plan.empty:
                self._finish(plan, seconds)

    def _take_arrivals(self) -> None:
        jobs, policy = self._jobs, self._policy
        if self._done is None and not self._scheduler.has_work and self._next < len(jobs):
            self.now = max(self.now, jobs[self._next].arrived)
        while self._next < len(jobs) and jobs[self._next].arrived <= self.now:
            job = jobs[self._next]
            self._scheduler.add(self._mix.request(job, levels=policy.levels, tenants=policy.tenants))
            self.watch.arrived(job.number)
            self._next += 1

    def _begin(self, plan: StepPlan) -> float:
        """Seconds of the step. The cursors are read here, before the commit of the last step can move on."""
        if plan.empty:
            if self._done is None and self._scheduler.has_work:
                self._wait_for_arrival()
            return 0.0
        seconds = self._platform.step_seconds(plan)
        self.watch.launched(plan, seconds, self._scheduler.pool.num_held * BLOCK_SIZE)
        self.watch.holdings(self._scheduler.running)
        return seconds

    def _wait_for_arrival(self) -> None:
        if self._next == len(self._jobs):
            raise StuckError(f"{self._scheduler.num_waiting} requests wait for ever at {self.now:.3f} s")
        self.now = self._jobs[self._next].arrived

    def _commit(self) -> int:
        """Take in the tokens of the step before; returns how many requests ended."""
        done, self._done = self._done, None
        if done is None:
            return 0
        return self.watch.finished(done, self._scheduler.commit(done, repeat(_NO_TOKEN)), self.now)

    def _finish(self, plan: StepPlan, seconds: float) -> None:
        self.now += seconds
        self._scheduler.finished(plan.step)
        self._scheduler.step_time.observe(plan.num_tokens, seconds)
        self._done = plan
