"""An executor without a model: the next token is a hash of every (token, position) read back through the block table.

Keys and values are replaced by the tokens themselves, written to and read from storage in blocks and slots. Any wrong
block, copy, swap, share, cursor or mixed-up sequence changes the text, in microseconds per step. A step runs when it is
collected, not when it is launched, as on a device.
"""

import hashlib
from typing import NamedTuple

from backend.beam_search import Answer, BeamSearch
from backend.endings import FinishReason
from backend.executor.interruption import Interruption
from backend.sampling_params import SamplingParams
from backend.scheduler.plan import StepPlan
from backend.token_detail import TokenDetail

VOCAB = 1000
Slot = tuple[int, int] | None


def next_token(tokens: list[int]) -> int:
    """What the oracle model says after these tokens."""
    digest = hashlib.blake2b(b"".join(t.to_bytes(4, "little") for t in tokens), digest_size=4).digest()
    return int.from_bytes(digest, "little") % VOCAB


def log_prob(tokens: list[int]) -> float:
    """The log-probability that the oracle model gives the token it says after these: of no meaning, but its own."""
    return -next_token([*tokens, VOCAB]) / VOCAB


def lone_run(prompt: tuple[int, ...], max_tokens: int, end_ids: frozenset[int] = frozenset()) -> list[int]:
    """The output of a request that is alone in the world."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + max_tokens:
        tokens.append(next_token(tokens))
        if tokens[-1] in end_ids:
            break
    return tokens[len(prompt) :]


def candidates(tokens: list[int], count: int) -> tuple[tuple[int, float], ...]:
    """(token, log-probability) of so many distinct tokens that the oracle model proposes after these, best first."""
    first, found, so_far = next_token(tokens), [], 0.0
    for n in range(count):
        so_far -= next_token([*tokens, VOCAB + n]) / VOCAB / 2
        found.append(((first + 37 * n) % VOCAB, so_far))
    return tuple(found)


def lone_search(prompt: tuple[int, ...], sampling: SamplingParams) -> list[Answer]:
    """The answers of a search that is alone in the world."""
    search = BeamSearch(sampling)
    while not search.ended:
        search.advance([candidates([*prompt, *beam.output], sampling.num_top) for beam in search.beams])
    return search.answers(FinishReason.LENGTH)


class Job(NamedTuple):
    """What a launch reads of a sequence: nothing of it is looked at later."""

    request_id: int
    tokens: list[int | None]
    start: int
    blocks: list[int]
    samples: bool
    sampling: SamplingParams


class LaunchedStep:
    def __init__(self, executor: "OracleExecutor", plan: StepPlan, jobs: list[Job]) -> None:
        self._executor, self._plan, self._jobs = executor, plan, jobs
        self._details: dict[int, TokenDetail] = {}

    def collect(self) -> list[int]:
        tokens = self._executor.run(self._plan, self._jobs)
        sampling = [job for job in self._jobs if job.samples]
        for place, job in enumerate(sampling):
            if job.sampling.detailed:
                tokens_read = self._executor.read(job)
                top = candidates(tokens_read, job.sampling.num_top) if job.sampling.beams is not None else ()
                self._details[place] = TokenDetail(log_prob(tokens_read), top)
        return tokens

    def details(self) -> dict[int, TokenDetail]:
        return self._details


class OracleExecutor:
    """slots[block][offset] holds (token, position) as last written, or None."""

    def __init__(self, num_blocks: int, block_size: int, host_slots: int = 0) -> None:
        self.block_size = block_size
        self.slots: list[list[Slot]] = [[None] * block_size for _ in range(num_blocks)]
        self.host: list[list[Slot]] = [[None] * block_size for _ in range(host_slots)]
        self.plans: list[StepPlan] = []
        self.closed = False
        self.interruption = Interruption()
        self._last: dict[int, int] = {}

    def launch(self, plan: StepPlan) -> LaunchedStep:
        self.plans.append(plan)
        self.interruption.begin(min(s.request.level for s in plan.sequences) if plan.chunks else None)
        jobs = []
        for work in plan.works():
            sequence, end = work.sequence, work.start + work.num_tokens
            known: list[int | None] = list(sequence.tokens[work.start : end])
            known += [None] * (work.num_tokens - len(known))
            asked = sequence.request
            blocks = list(sequence.blocks)
            jobs.append(Job(asked.request_id, known, work.start, blocks, work.samples, asked.sampling))
        return LaunchedStep(self, plan, jobs)

    def run(self, plan: StepPlan, jobs: list[Job]) -> list[int]:
        for source, target in plan.copies.to_host:
            self.host[target] = list(self.slots[source])
        for source, target in plan.copies.from_host:
            self.slots[target] = list(self.host[source])
        for source, target in plan.copies.within:
            self.slots[target] = list(self.slots[source])
        for n, job in enumerate(jobs):
            if n >= len(jobs) // 2:  # as in the midst of a step's layers, when part of it is written
                self.interruption.check()
            self._write(job)
        self.interruption.end()
        sampled = {job.request_id: next_token(self.read(job)) for job in jobs if job.samples}
        self._last = sampled
        return list(sampled.values())

    def _write(self, job: Job) -> None:
        for n, token in enumerate(job.tokens):
            block, offset = divmod(job.start + n, self.block_size)
            value = self._last[job.request_id] if token is None else token
            self.slots[job.blocks[block]][offset] = (value, job.start + n)

    def read(self, job: Job) -> list[int]:
        """The sequence's tokens, as its block table has them."""
        tokens = []
        for position in range(job.start + len(job.tokens)):
            block, offset = divmod(position, self.block_size)
            slot = self.slots[job.blocks[block]][offset]
            assert slot is not None, "a slot was read before it was written"
            assert slot[1] == position, "a slot holds another position"
            tokens.append(slot[0])
        return tokens

    def interrupt(self, level: int) -> None:
        self.interruption.interrupt(level)

    def close(self) -> None:
        self.closed = True
