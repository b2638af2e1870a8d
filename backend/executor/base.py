"""What the engine asks of an executor."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from typing import Protocol, runtime_checkable

from backend.scheduler.plan import StepPlan
from backend.token_detail import TokenDetail


class StepHandle(Protocol):
    """A step under way."""

    def collect(self) -> SequenceOf[int]:
        """Wait until the step has finished; its tokens, in the order of ``plan.sampling()``.

        A guided sequence that can have none gets a ``NoToken`` in its place.

        Raises what the step raised; StepInterruptedError if it was ended early.
        """

    def details(self) -> Mapping[int, TokenDetail]:
        """After ``collect``: details of the tokens whose sequences asked for them, by place among the tokens."""

    def context(self) -> Mapping[int, bytes]:
        """After ``collect``: float32 logits ``[n, vocab]`` of a prompt's positions that a chunk computed.

        For sequences that asked for them, by the chunk's place among the plan's.
        """


class Executor(Protocol):
    """Turns plans into tokens, in the order in which they are launched."""

    def launch(self, plan: StepPlan) -> StepHandle:
        """Begin a step and return at once: all that is needed of the plan's sequences is read before.

        A sequence may be planned before the token of its last step is known to the scheduler; that token is then the
        one that the executor itself sampled for it in the step before.
        """

    def close(self) -> None:
        """End whatever the executor runs on."""


@runtime_checkable
class InterruptibleExecutor(Protocol):
    """One that can end a step before its end."""

    def interrupt(self, level: int) -> None:
        """Someone of this level has arrived: end the step under way soon, if all in it are less urgent.

        From any thread. Steps of nothing but decodes run to their end: they are short.
        """


class MeasuredExecutor(Executor, Protocol):
    """One that can say what preemption costs on it."""

    def seconds_per_token(self, num_tokens: int) -> float:
        """Measured time of computing a prompt of so many tokens, per token."""

    def seconds_per_block(self) -> float:
        """Measured time of copying one block between pool and host; 0 without host space."""
