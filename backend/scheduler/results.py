"""Results: what a finished step brought. Tokens are appended, sequences end with them, filled blocks are published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from backend.request import Sequence, State
from backend.scheduler.beams import Beams
from backend.scheduler.plan import Chunk, StepPlan, TokenOutput
from backend.scheduler.population import Population
from backend.scheduler.settings import SchedulerSettings


class Results:
    """For one scheduler. Tokens of sequences that have ended since are dropped; those of preempted ones are kept."""

    def __init__(self, settings: SchedulerSettings, population: Population, beams: Beams) -> None:
        self._settings = settings
        self._population = population
        self._residency = population.residency
        self._beams = beams

    def commit(self, plan: StepPlan, tokens: Iterable[int], fence: int) -> list[TokenOutput]:
        """Take in the tokens, which come in the order of ``plan.sampling()``. fence: of the step launched last."""
        outputs: list[TokenOutput] = []
        supply = iter(tokens)
        self._commit_decodes(plan.decodes, supply, fence, outputs)
        for chunk in plan.chunks:
            self._commit_chunk(chunk, next(supply) if chunk.samples else None, fence, outputs)
        return outputs

    def _commit_decodes(
        self, decodes: list[Sequence], supply: Iterator[int], fence: int, outputs: list[TokenOutput]
    ) -> None:
        """The hot loop: nearly all tokens are quiet ones, for which one comparison and one look-up are enough."""
        output = outputs.append
        for pair in zip(decodes, supply, strict=False):
            sequence, token = pair
            known = sequence.tokens
            if len(known) < sequence.quiet_until and token not in sequence.ends:
                known.append(token)
                output(pair)
            else:
                self._commit_decode(sequence, token, fence, outputs)

    def _commit_decode(self, sequence: Sequence, token: int, fence: int, outputs: list[TokenOutput]) -> None:
        """A token that may end its sequence, or is the first after a block has been filled."""
        filled, size = len(sequence.tokens), self._settings.block_size
        if sequence.state is not State.FINISHED:
            self._append(sequence, token, fence, outputs)
        if sequence.state is State.RUNNING:
            if not filled % size:
                self._residency.publish(sequence, filled)
                self._population.shares.charge(sequence)
            if sequence.watch is None:
                sequence.quiet_until = min(sequence.limit, filled - filled % size + size)

    def _commit_chunk(self, chunk: Chunk, token: int | None, fence: int, outputs: list[TokenOutput]) -> None:
        sequence = chunk.sequence
        if sequence.state is State.RUNNING and sequence.num_preemptions == chunk.epoch:
            self._residency.publish(sequence, chunk.start + chunk.num_tokens)
        if token is None or sequence.state is State.FINISHED:
            return
        if sequence.group is None:
            self._append(sequence, token, fence, outputs)
        elif (reason := self._beams.commit(chunk, fence)) is not None:
            self._population.end(sequence.owner, reason, fence)
            outputs.append((sequence.owner, None))

    def _append(self, sequence: Sequence, token: int, fence: int, outputs: list[TokenOutput]) -> None:
        reason = sequence.append(token)
        sequence.awaits_token = False
        outputs.append((sequence, token if token >= 0 else None))
        if reason is not None:
            self._population.end(sequence, reason, fence)
