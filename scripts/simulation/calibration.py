"""What a platform can do: its maximal rate, and what is resident in the pool at that rate."""

from __future__ import annotations

from typing import NamedTuple

from scripts.simulation.hardware import Platform
from scripts.simulation.measurements import Measurements
from scripts.simulation.percentiles import percentile
from scripts.simulation.policies import POLICIES
from scripts.simulation.simulator import Simulator
from scripts.simulation.workload import MAX_SEQ_LEN, Job, Mix


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


_FAR_APART = 1000.0


def idle_ttft(platform: Platform, mix: Mix, jobs: list[Job]) -> dict[str, float]:
    """TTFT of the most urgent of the jobs if each finds the server idle: what no policy can better."""
    level = min(job.level for job in jobs)
    urgent = [job for job in jobs if job.level == level]
    lone = [job._replace(number=n, arrived=n * _FAR_APART, output=1) for n, job in enumerate(urgent)]
    policy = POLICIES["ours"]
    watch = Measurements(lone, 1.0, 2.0)
    Simulator(policy.scheduler(platform, 4 * MAX_SEQ_LEN), platform, lone, watch, mix, policy).run()
    waits = [record.first - record.job.arrived for record in watch.records]
    return {"ttft_p50": percentile(waits, 50), "ttft_p99": percentile(waits, 99)}
