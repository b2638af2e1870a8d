"""One run of the grid, and what it showed, as plain numbers."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scripts.simulation.hardware import BLOCK_SIZE, Platform
from scripts.simulation.measurements import Measurements, Record
from scripts.simulation.percentiles import percentile, weighted_percentile
from scripts.simulation.policies import Policy
from scripts.simulation.simulator import Simulator
from scripts.simulation.watched_scheduler import WatchedScheduler
from scripts.simulation.workload import Job, Mix


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """load: offered tokens over the server's maximal rate. pool: its size over the mean demand at full load."""

    platform: Platform
    policy: Policy
    load: float
    pool: float


@contextmanager
def _no_collection() -> Iterator[None]:
    """What is dropped goes by reference count; the collector would only walk all records again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Run:
    """A finished simulation of ``jobs``. seconds, processor_seconds: of this machine."""

    def __init__(
        self,
        cell: Cell,
        mix: Mix,
        jobs: list[Job],
        pool_tokens: int,
        on_ended: Callable[[int], object] = lambda count: None,
    ) -> None:
        self.cell, self.jobs = cell, jobs
        self.scheduler: WatchedScheduler = cell.policy.scheduler(cell.platform, pool_tokens)
        settings = self.scheduler.settings
        self.watch = Measurements(jobs, settings.input_weight, settings.output_weight)
        simulator = Simulator(self.scheduler, cell.platform, jobs, self.watch, mix, cell.policy)
        began, busy = time.perf_counter(), time.process_time()
        with _no_collection():
            simulator.run(on_ended)
        self.seconds, self.processor_seconds = time.perf_counter() - began, time.process_time() - busy
        self.simulated = simulator.now
        self.scheduler.pool.check_empty()

    def figures(self) -> dict[str, Any]:
        """Times in seconds, rates in tokens per second, the rest in tokens or counts."""
        levels = {str(level): self._level(level) for level in self.watch.gaps}
        return {
            "platform": self.cell.platform.name,
            "policy": self.cell.policy.name,
            "load": self.cell.load,
            "pool": self.cell.pool,
            "requests": len(self.jobs),
            "pool_tokens": self.scheduler.pool.num_usable * BLOCK_SIZE,
            "goodput": self._goodput(),
            "throughput": sum(job.output for job in self.jobs) / self.simulated,
            "useful": 1 - self.watch.recomputed / self.watch.computed,
            "swapped_blocks": self.scheduler.residency.swapped_blocks,
            "preemptions": self._preemptions(self.jobs),
            "starved": max(self.watch.starved.values()),
            "levels": levels,
            "fairness": self._fairness(),
            "waste": self._waste(),
            "mean_step": self.simulated / self.watch.steps,
            "simulated": self.simulated,
            "wall": self.seconds,
            "processor": self.processor_seconds,
        }

    def _goodput(self) -> float:
        """Output of requests that had ended when the last one arrived: the drain afterwards is no load."""
        horizon = self.jobs[-1].arrived or self.simulated
        return sum(r.job.output for r in self.watch.records if r.ended <= horizon) / horizon

    def _level(self, level: int) -> dict[str, Any]:
        records = [r for r in self.watch.records if r.job.level == level]
        first, gaps = [r.first - r.job.arrived for r in records], self.watch.gaps[level]
        return {
            "ttft_p50": percentile(first, 50),
            "ttft_p99": percentile(first, 99),
            "gap_p50": weighted_percentile(gaps, 50),
            "gap_p99": weighted_percentile(gaps, 99),
            "starved": self.watch.starved[level],
            "preemptions": self._preemptions([r.job for r in records]),
        }

    def _preemptions(self, jobs: list[Job]) -> dict[str, float]:
        own, urgent = self.scheduler.by_own, self.scheduler.by_urgent
        both = [own[job.number] + urgent[job.number] for job in jobs]
        return {
            "mean": sum(both) / len(both),
            "max": max(both),
            "max_by_own_level": max(own[job.number] for job in jobs),
            "max_by_more_urgent": max(urgent[job.number] for job in jobs),
        }

    def _waste(self) -> dict[str, float]:
        """Allocated token slots that hold no token, as shares of the pool: in the mean, and at the worst moment."""
        unused, pool = self.watch.unused or [0], self.scheduler.pool.num_usable * BLOCK_SIZE
        return {"mean": sum(unused) / len(unused) / pool, "max": max(unused) / pool}

    def _fairness(self) -> dict[str, float]:
        fairness = self.watch.fairness
        longest = max(job.prompt for job in self.jobs)
        bound = fairness.bound(longest, self.scheduler.pool.num_usable * BLOCK_SIZE)
        worst = max(fairness.worst.values())
        return {"worst": worst, "bound": bound, "share": worst / bound}

    @property
    def records(self) -> list[Record]:
        """The requests, by number."""
        return self.watch.records
