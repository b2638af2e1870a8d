"""StepDraft: a step while it is being planned. What goes in moves cursors; what is dropped moves them back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

from backend.request import Sequence
from backend.scheduler.plan import Chunk
from backend.scheduler.population import Population
from backend.scheduler.settings import SchedulerSettings
from backend.scheduler.step_time import StepTime

_ORDER = attrgetter("order")
_WITH_DECODES = 1.5  # how much longer than of its decodes alone a step may be for prompts in it


class StepDraft:
    """Decodes and chunks of one step, and the tokens that are left of its budget."""

    def __init__(
        self, settings: SchedulerSettings, population: Population, step_time: StepTime, hurried: bool = True
    ) -> None:
        """hurried: whether a more urgent arrival would have to wait for the end of the step, or soon may."""
        self.decodes: list[Sequence] = []
        self.chunks: list[Chunk] = []
        self._settings = settings
        self._population = population
        self._step_time = step_time
        self._hurried = hurried
        self._num_chunk_tokens = 0

    @property
    def budget(self) -> int:
        """Tokens that the step may still take on."""
        return self._settings.max_num_tokens - len(self.decodes) - self._num_chunk_tokens

    def add_decodes(self, sequences: Iterable[Sequence]) -> list[Sequence]:
        """One token each, where there is room for it; returns those that need a block first.

        The hot loop: two comparisons and an addition per sequence, everything else once per block.
        """
        decodes, growing = self.decodes, []
        for sequence in sequences:
            cursor = sequence.num_computed
            if cursor < sequence.capacity:
                sequence.num_computed = cursor + 1
                decodes.append(sequence)
            elif cursor < sequence.limit:
                growing.append(sequence)
            # Else the last token that its length allows is being computed.
        return growing

    def add_chunk(self, sequence: Sequence) -> None:
        """As many tokens as budget and step-time target allow; a more urgent prompt takes tokens from decodes."""
        wanted = min(sequence.num_uncomputed, self._within_target(sequence))
        if wanted > self.budget and self._settings.preemption:
            self._take_tokens(sequence, wanted - self.budget)
        count = min(wanted, self.budget)
        if count > 0 and self._append(sequence, count).samples:
            self._population.decode(sequence)

    def clear_the_way(self, sequence: Sequence) -> bool:
        """Have less urgent decodes and beams sit this step out if the sequence's whole prompt is in it.

        Returns whether any had to.
        """
        chunk = self.chunks[-1] if self.chunks else None
        if chunk is None or chunk.sequence is not sequence or not chunk.samples or sequence.num_output:
            return False
        level = sequence.request.level
        less = [s for s in self.decodes if s.request.level > level]
        self._drop_decodes(less)
        branches = [
            c.sequence for c in self.chunks if c.sequence.owner is not c.sequence and c.sequence.request.level > level
        ]
        for branch in branches:
            self.drop(branch)
        return bool(less or branches)

    def add_branch(self, branch: Sequence) -> None:
        """The next token of a beam; or of a chunk of what it has to compute again, as much as fits."""
        count = min(branch.num_uncomputed, self.budget)
        if count > 1:
            count = min(count, max(self._within_target(branch), 1))
        if count > 0:
            self._append(branch, count)

    def _append(self, sequence: Sequence, count: int) -> Chunk:
        """The sequence's next tokens, so many, are in the step: its cursor moves, and the budget shrinks."""
        start, end = sequence.num_computed, sequence.num_computed + count
        chunk = Chunk(sequence, start, count, end == sequence.num_tokens, sequence.num_preemptions)
        sequence.num_computed = end
        self._num_chunk_tokens += count
        self.chunks.append(chunk)
        return chunk

    def can_take_tokens(self, sequence: Sequence) -> bool:
        """Whether less urgent work in the step would make room for the sequence."""
        level = sequence.request.level
        if not self._settings.preemption:
            return False
        if any(chunk.sequence.request.level > level for chunk in self.chunks):
            return True
        return self._of_decodes > 0 and any(s.request.level > level for s in self.decodes)

    @property
    def _of_decodes(self) -> int:
        """Tokens that chunks may still take from decodes: half of the step is theirs if they want it.

        The other half is left to streams however many long prompts come, so that no gap grows with a prompt's length.
        """
        return (self._settings.max_num_tokens + 1) // 2 - self._num_chunk_tokens

    def _take_tokens(self, sequence: Sequence, lacking: int) -> None:
        """Let less urgent work sit this step out, the least urgent first; it loses time, nothing else.

        Chunks go before decodes: a stream's gap is felt, a prompt's delay is not.
        """
        level, enough = sequence.request.level, self.budget + lacking
        chunks = [chunk.sequence for chunk in self.chunks if chunk.sequence.request.level > level]
        decodes = [s for s in self.decodes if s.request.level > level]
        for other in sorted(chunks, key=_ORDER, reverse=True):
            if self.budget < enough:
                self.drop(other)
        taken = min(enough, self._of_decodes) - self.budget
        self._drop_decodes(sorted(decodes, key=_ORDER, reverse=True)[: max(0, taken)])

    def _drop_decodes(self, others: list[Sequence]) -> None:
        """All in one pass: there may be as many as there are slots."""
        for other in others:
            other.num_computed -= 1
        dropped = set(others)
        if dropped:
            self.decodes[:] = [s for s in self.decodes if s not in dropped]

    def _within_target(self, sequence: Sequence) -> int:
        """Tokens that the step may take on without being too long for whoever is in it, or may yet arrive."""
        seconds = min(self._limits(sequence.request.level), default=None)
        if seconds is None:
            return self._settings.max_num_tokens
        fitting = self._step_time.tokens_within(seconds)
        if fitting is None:
            return self._settings.max_num_tokens
        # Never nothing at all: both sides are to get on.
        return max(fitting - self._planned, 0 if self.chunks else self._settings.block_size)

    def _limits(self, level: int) -> Iterator[float]:
        """Seconds that a step may take with another chunk of a level in it."""
        settings = self._settings
        if settings.target_step_seconds and any(s.request.level <= level for s in self.decodes):
            yield settings.target_step_seconds
        if settings.max_step_seconds and level > 1 and self._hurried:
            decodes = self._step_time.predict(len(self.decodes)) if self.decodes else 0.0
            yield max(settings.max_step_seconds, decodes * _WITH_DECODES)
        if any(chunk.sequence.request.level < level for chunk in self.chunks):
            urgent = self._planned - self._num_less_urgent_tokens(level)
            yield self._step_time.predict(urgent) * (1 + settings.ride_along)

    def _num_less_urgent_tokens(self, level: int) -> int:
        return sum(chunk.num_tokens for chunk in self.chunks if chunk.sequence.request.level >= level)

    @property
    def _planned(self) -> int:
        return len(self.decodes) + self._num_chunk_tokens

    def add_left_out(self, up_to: int | None = None) -> None:
        """Give what is left of the budget to prefilling sequences that have nothing in this step.

        up_to: only to those of this level and more urgent ones.
        """
        planned = {chunk.sequence for chunk in self.chunks}
        for sequence in sorted(self._population.prefilling.values(), key=_ORDER):
            if sequence in planned or (up_to is not None and sequence.request.level > up_to):
                continue
            if self.budget > 0:
                self.add_chunk(sequence)

    def drop(self, sequence: Sequence) -> None:
        """Take out whatever the sequence has in this step, and its branches."""
        if sequence.group is not None and sequence.group.root is sequence:
            for branch in sequence.group.branches:
                self.drop(branch)
        for n, other in enumerate(self.decodes):
            if other is sequence:
                del self.decodes[n]
                sequence.num_computed -= 1
                return
        for n, chunk in enumerate(self.chunks):
            if chunk.sequence is sequence:
                del self.chunks[n]
                sequence.num_computed = chunk.start
                self._num_chunk_tokens -= chunk.num_tokens
                if chunk.samples and sequence.owner is sequence:
                    self._population.prefill(sequence)
                return
