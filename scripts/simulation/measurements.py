"""What is watched in a run: per request its times, per step its tokens. All is seen from outside the scheduler."""

from __future__ import annotations

from collections import defaultdict

from backend.request import Sequence
from backend.scheduler.plan import StepPlan, TokenOutput
from scripts.simulation.fairness import FairnessWatch
from scripts.simulation.hardware import BLOCK_SIZE
from scripts.simulation.workload import Job

_STEPS_BETWEEN_LOOKS = 8


class Record:
    """One request. Times in seconds on the simulated clock; progress: when a token of it was last computed."""

    __slots__ = ("account", "ended", "first", "job", "last", "prefilled", "progress")

    def __init__(self, job: Job, account: int) -> None:
        self.job = job
        self.account = account
        self.first = self.last = self.ended = self.progress = -1.0
        self.prefilled = -1  # prompt tokens computed at least once; -1 before the first chunk


class Measurements:
    """Of one run over ``jobs``.

    gaps: level -> {seconds between two tokens of a request: how often}. starved: level -> longest time without any
    token computed, from the end of a request's first chunk on. unused: allocated token slots without a token, at times.
    """

    def __init__(self, jobs: list[Job], input_weight: float, output_weight: float) -> None:
        accounts = sorted({(job.level, job.tenant) for job in jobs})
        index = {account: n for n, account in enumerate(accounts)}
        self.fairness = FairnessWatch(accounts, input_weight, output_weight)
        self.records = [Record(job, index[job.level, job.tenant]) for job in jobs]
        levels = sorted({job.level for job in jobs})
        self.gaps: dict[int, dict[float, int]] = {level: defaultdict(int) for level in levels}
        self.starved = dict.fromkeys(levels, 0.0)
        self.computed = self.recomputed = self.num_ended = self.steps = 0
        self.held_token_seconds = 0.0
        self.unused: list[int] = []
        self._before = -1.0

    def arrived(self, number: int) -> None:
        """The request has been handed to the scheduler."""
        self.fairness.arrived(self.records[number].account)

    def launched(self, plan: StepPlan, seconds: float, held_tokens: int) -> None:
        """A step begins that will take so long; the pool holds so many tokens meanwhile."""
        self.steps += 1
        self.computed += plan.num_tokens
        self.held_token_seconds += seconds * held_tokens
        for chunk in plan.chunks:
            record = self.records[chunk.sequence.request.request_id]
            if record.prefilled < 0:
                self.fairness.started(record.account, record.job.prompt)
                record.prefilled = chunk.start  # what the prefix cache had is nobody's to compute
            end = chunk.start + chunk.num_tokens
            known = chunk.sequence.num_tokens - 1 if record.first >= 0 else record.prefilled
            self.recomputed += max(0, min(end, known) - chunk.start)
            record.prefilled = max(record.prefilled, end)

    def holdings(self, running: list[Sequence]) -> None:
        """Note the token slots that running sequences hold and have not filled; now and then, as it costs time."""
        if self.steps % _STEPS_BETWEEN_LOOKS == 0:
            self.unused.append(sum(len(s.blocks) * BLOCK_SIZE - s.num_computed for s in running))

    def finished(self, plan: StepPlan, outputs: list[TokenOutput], now: float) -> int:
        """A step has ended and these are its tokens. Returns how many requests ended with it."""
        ended = self._tokens(outputs, now)
        for chunk in plan.chunks:
            self._progress(self.records[chunk.sequence.request.request_id], now)
        self.fairness.check()
        self._before = now
        return ended

    def _tokens(self, outputs: list[TokenOutput], now: float) -> int:
        """The hot loop: once per token."""
        records, gaps, served = self.records, self.gaps, self.fairness.served
        weight, before, ended = self.fairness.output_weight, self._before, 0
        for sequence, _ in outputs:
            record = records[sequence.request.request_id]
            served[record.account] += weight
            last = record.last
            if last < 0:
                record.first = now
            else:
                gaps[record.job.level][now - last] += 1
                if last != before:
                    self._progress(record, now)
            record.last = now
            if sequence.finish_reason is not None:
                record.ended = now
                ended += 1
        self.num_ended += ended
        return ended

    def _progress(self, record: Record, now: float) -> None:
        """Tokens of it have been computed; before, the last time in a chunk or as its last token."""
        since = max(record.progress, record.last)
        if since >= 0:
            self.starved[record.job.level] = max(self.starved[record.job.level], now - since)
        record.progress = now
