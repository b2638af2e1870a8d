"""StepPlan: the frozen decision of one step."""

from __future__ import annotations

from typing import NamedTuple

from backend.request import Sequence


class Chunk(NamedTuple):
    """Compute ``num_tokens`` tokens of ``sequence`` from position ``start`` on.

    samples: the chunk reaches the last known token, so its last row's logits give the next one. epoch: the sequence's
    preemptions when this was planned; if there have been more since, its blocks are others.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool
    epoch: int = 0


class BlockCopies(NamedTuple):
    """Copies that a step makes before it computes anything, in this order: out, in, within; each [(from, to), ...].

    moved: the sequences they are made for.
    """

    to_host: list[tuple[int, int]]
    from_host: list[tuple[int, int]]
    within: list[tuple[int, int]]
    moved: list[Sequence]


class StepPlan(NamedTuple):
    """What one step does. ``step`` numbers the steps from 1 and is the step's fence.

    decodes: sequences of which one token is computed, the one before their cursor; each samples. chunks: the others.
    The sampled tokens come in the order of the decodes, then of the chunks that sample. beams: what this step brings
    decides what the next one computes.
    """

    step: int
    decodes: list[Sequence]
    chunks: list[Chunk]
    copies: BlockCopies
    beams: bool = False

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return len(self.decodes) + sum(chunk.num_tokens for chunk in self.chunks)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to launch."""
        return not (self.decodes or self.chunks or self.copies.moved)

    @property
    def context(self) -> bool:
        """Whether logits of a prompt's positions are asked for."""
        return any(chunk.sequence.context is not None for chunk in self.chunks)

    def sampling(self) -> list[Sequence]:
        """The sequences that get a token, in the order of the sampled tokens."""
        return self.decodes + [chunk.sequence for chunk in self.chunks if chunk.samples]

    @property
    def sequences(self) -> list[Sequence]:
        """Everyone who has something in this step."""
        return self.decodes + [chunk.sequence for chunk in self.chunks]

    def works(self) -> list[Chunk]:
        """Everything computed, decodes as chunks of one token. For executors and watchers, right after scheduling."""
        ones = [
            Chunk(sequence, sequence.num_computed - 1, 1, True, sequence.num_preemptions) for sequence in self.decodes
        ]
        return ones + self.chunks


TokenOutput = tuple[Sequence, int | None]
"""What a step brought one sequence: its new token, if any. Its finish_reason says whether it has ended.

A plain pair: there is one per token, and a class of its own would cost as much again as taking the token in.
"""
