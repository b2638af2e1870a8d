"""Who asks for what, and when: bursty arrivals, conversation-like lengths, levels, tenants, shared system prompts."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from backend.request import Request
from backend.sampling_params import SamplingParams

T = TypeVar("T")

MAX_SEQ_LEN = 8192
_UNIQUE = 1_000_000
"""A request's own part begins with an id above this that no other has; the prefix cache tells texts apart by it."""


class Job(NamedTuple):
    """One request to come. arrived: seconds. prefix: number of its system prompt, or -1. Lengths in tokens."""

    number: int
    arrived: float
    level: int
    tenant: str
    prefix: int
    prompt: int
    output: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Mix:
    """Distributions. own, output: mean and sigma of a lognormal. levels, tenants: name -> share of the requests.

    prefixes: lengths of the system prompts, the first the most popular (Zipf); prefix_share of the requests have one.
    burstiness: coefficient of variation of the gaps between arrivals (gamma); 1 is Poisson.
    """

    own: tuple[float, float] = (520.0, 1.0)
    output: tuple[float, float] = (360.0, 0.8)
    levels: tuple[tuple[int, float], ...] = ((1, 0.1), (2, 0.6), (3, 0.3))
    tenants: tuple[tuple[str, float], ...] = (("a", 0.5), ("b", 0.25), ("c", 0.15), ("d", 0.1))
    prefixes: tuple[int, ...] = (128, 256, 512, 64, 384, 192, 320, 448)
    prefix_share: float = 0.6
    burstiness: float = 2.0

    def jobs(self, seed: int, count: int, rate: float = math.inf) -> list[Job]:
        """``count`` jobs at ``rate`` per second (all at once if infinite). Only arrival times depend on the rate."""
        shapes, gaps = random.Random(f"shapes {seed}"), random.Random(f"gaps {seed}")
        now, made = 0.0, []
        for number in range(count):
            made.append(self._job(shapes, number, now))
            now += self._gap(gaps) / rate
        return made

    def _gap(self, source: random.Random) -> float:
        shape = self.burstiness**-2
        return source.gammavariate(shape, 1 / shape)

    def _job(self, source: random.Random, number: int, arrived: float) -> Job:
        level = _pick(source, self.levels)
        tenant = _pick(source, self.tenants)
        prefix = self._prefix(source)
        own = _length(source, self.own, 8, 3500)
        output = _length(source, self.output, 4, 2048)
        return Job(number, arrived, level, tenant, prefix, own + (self.prefixes[prefix] if prefix >= 0 else 0), output)

    def _prefix(self, source: random.Random) -> int:
        popularity = [(number, 1 / (number + 1)) for number in range(len(self.prefixes))]
        chosen = _pick(source, tuple(popularity))
        return chosen if source.random() < self.prefix_share else -1

    def request(self, job: Job, *, levels: bool, tenants: bool) -> Request:
        """The job as the scheduler gets it; without levels or tenants all are alike in that."""
        shared = self.prefixes[job.prefix] if job.prefix >= 0 else 0
        # One unlike token makes all that follows a different text; constants keep 100,000 prompts small.
        prompt = (2 + job.prefix,) * shared + (_UNIQUE + job.number,) + (1,) * (job.prompt - shared - 1)
        return Request(
            request_id=job.number,
            prompt=prompt,
            sampling=SamplingParams(max_tokens=job.output),
            level=job.level if levels else 1,
            arrival=job.number,
            arrived=job.arrived,
            tenant=job.tenant if tenants else "",
        )


def _pick(source: random.Random, shares: tuple[tuple[T, float], ...]) -> T:
    values, weights = zip(*shares, strict=True)
    return source.choices(values, weights)[0]


def _length(source: random.Random, mean_and_sigma: tuple[float, float], low: int, high: int) -> int:
    mean, sigma = mean_and_sigma
    drawn = source.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)
    return min(high, max(low, round(drawn)))
