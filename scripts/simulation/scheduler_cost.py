"""What schedule + commit cost in a step in which every sequence decodes, by the number of sequences that run.

The real scheduler without an executor. Sizes take turns of some steps each, so that a busy spell of the machine falls
on all of them, and the median counts: of the wall clock, and of this thread's processor time. The first step of a turn
finds the caches filled by the other sizes, as after an executor that shares them; it is counted apart, as ``cold``.
Prompts differ in length, so that as in service one sequence in sixteen needs a block in any one step.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

from backend import garbage
from backend.kv.block_pool import BlockPool
from backend.request import Request
from backend.sampling_params import SamplingParams
from backend.scheduler.scheduler import Scheduler
from backend.scheduler.settings import SchedulerSettings
from scripts.simulation.hardware import BLOCK_SIZE

SIZES = (64, 256, 1024)
LIMITS_MS = {256: 0.5, 1024: 2.0}
_PROMPT, _TENANTS, _LEVELS = 64, 4, 3
_TURN = 20


class Cost(NamedTuple):
    """Seconds of one step: of the wall clock, and both parts' of the processor."""

    schedule: float
    commit: float
    both: float
    processor: float


class SteadyStep:
    """A scheduler with ``size`` sequences that all decode, for at least ``steps`` steps."""

    def __init__(self, size: int, steps: int) -> None:
        self.size = size
        prompt, output = _PROMPT + BLOCK_SIZE, steps + size + BLOCK_SIZE
        settings = SchedulerSettings(
            block_size=BLOCK_SIZE, max_batch_size=size, max_num_tokens=8192, max_seq_len=prompt + output
        )
        self._scheduler = Scheduler(settings, BlockPool(size * (1 + (prompt + output) // BLOCK_SIZE) * 11 // 10))
        for number in range(size):
            self._scheduler.add(_request(number, output))
        while self.step()[1] < size:
            pass

    def step(self) -> tuple[Cost, int]:
        """The step's cost, and how many sequences decode in it."""
        scheduler = self._scheduler
        before = _now()
        plan = scheduler.schedule(0.0)
        scheduled = _now()
        scheduler.finished(plan.step)
        launched = _now()
        scheduler.commit(plan, repeat(0))
        committed = _now()
        times = zip(before, scheduled, launched, committed, strict=True)
        wall, thread = ((s - b, c - f) for b, s, f, c in times)
        return Cost(*wall, sum(wall), sum(thread)), len(plan.decodes)


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.thread_time()


def _request(number: int, output: int) -> Request:
    return Request(
        request_id=number,
        prompt=(number + 2,) + (1,) * (_PROMPT + number % BLOCK_SIZE),
        sampling=SamplingParams(max_tokens=output),
        level=1 + number % _LEVELS,
        arrival=number,
        tenant=str(number % _TENANTS),
    )


def measure_costs(
    rounds: int = 400, sizes: tuple[int, ...] = SIZES, bar: Callable[..., Iterable[int]] = lambda r, **_: r
) -> Iterator[dict[str, Any]]:
    """Medians in milliseconds per size. rounds: steps of each size. bar: wraps the turns, as tqdm does."""
    steps = {size: SteadyStep(size, rounds) for size in sizes}
    garbage.settle()  # as the serving process does
    warm: dict[int, list[Cost]] = {size: [] for size in sizes}
    cold: dict[int, list[Cost]] = {size: [] for size in sizes}
    for begun in bar(range(0, rounds, _TURN), desc="turns", leave=False):
        for size, steady in steps.items():
            cold[size].append(steady.step()[0])
            warm[size] += [steady.step()[0] for _ in range(min(_TURN, rounds - begun) - 1)]
    for size in sizes:
        yield _line(size, warm[size], cold[size])


def _line(size: int, costs: list[Cost], cold: list[Cost]) -> dict[str, Any]:
    medians = Cost(*(round(statistics.median(column) * 1e3, 4) for column in zip(*costs, strict=True)))
    return {
        "running": size,
        "schedule_ms": medians.schedule,
        "commit_ms": medians.commit,
        "both_ms": medians.both,
        "processor_ms": medians.processor,
        "fastest_ms": round(min(cost.both for cost in costs) * 1e3, 4),
        "cold_ms": round(statistics.median(cost.both for cost in cold) * 1e3, 4),
        "processor_us_per_sequence": round(medians.processor * 1e3 / size, 3),
        "limit_ms": LIMITS_MS.get(size),
    }
