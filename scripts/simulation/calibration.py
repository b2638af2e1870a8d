"""What a platform can do: its maximal rate, and what is resident in the pool at that rate."""

from __future__ import annotations

from typing import NamedTuple

from scripts.simulation.hardware import Platform
from scripts.simulation.measurements import Measurements
from scripts.simulation.policies import POLICIES
from scripts.simulation.simulator import Simulator
from scripts.simulation.workload import MAX_SEQ_LEN, Mix


class Capacity(NamedTuple):
    """tokens_per_second: prompt and output of ended requests. held_tokens: mean token slots held at that rate.

    By Little's law the latter is the rate times what a request holds over its life, so it is the demand for pool.
    """

    tokens_per_second: float
    requests_per_second: float
    held_tokens: float


def measure_capacity(platform: Platform, mix: Mix, seed: int, count: int) -> Capacity:
    """All requests at once, first come first served, a pool that is never short; the middle half of the ends counts."""
    jobs = mix.jobs(seed, count)
    policy = POLICIES["fcfs"]
    scheduler = policy.scheduler(platform, platform.slots * MAX_SEQ_LEN)
    watch = Measurements(jobs, 1.0, 2.0)
    simulator = Simulator(scheduler, platform, jobs, watch, mix, policy)
    marks: list[tuple[float, float]] = []  # (now, held token seconds) at a quarter and at three quarters

    def look(count_ended: int) -> None:
        if count_ended and watch.num_ended >= (1 + 2 * len(marks)) * count / 4 and len(marks) < 2:
            marks.append((simulator.now, watch.held_token_seconds))

    simulator.run(look)
    (start, held_before), (end, held_after) = marks
    middle = [r.job for r in watch.records if start < r.ended <= end]
    tokens = sum(job.prompt + job.output for job in middle)
    mean = sum(job.prompt + job.output for job in jobs) / count
    rate = tokens / (end - start)
    return Capacity(rate, rate / mean, (held_after - held_before) / (end - start))
