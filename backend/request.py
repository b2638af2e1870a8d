"""Request: what was asked, immutable. Sequence: how far it is, one cursor."""

from __future__ import annotations

import enum
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import Protocol

from backend.sampling_params import SamplingParams


class FinishReason(enum.StrEnum):
    """Why a sequence ended; the value is what a client reads."""

    EOS = "eos"
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


class StopWatch(Protocol):
    """Looks at each new token and says when the text holds a stop string. Deterministic in the tokens alone."""

    def push(self, token_id: int) -> bool:
        """Take the next generated token; True when the sequence is to end here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a client asked for. Never changes after validation.

    request_id: the engine's own number, unique in its life. level: 1 is the most urgent. arrival: a number that grows
    with each request; the order among equals.
    """

    request_id: int
    prompt: tuple[int, ...]
    sampling: SamplingParams
    level: int
    arrival: int
    stop_watch: StopWatch | None = None

    @property
    def max_tokens_held(self) -> int:
        """Token slots of the pool that the request can come to need: the last token is never read back."""
        return len(self.prompt) + self.sampling.max_tokens - 1


@dataclass(slots=True, eq=False)
class Sequence:
    """One request under way. ``num_computed`` is the one cursor; it chases ``num_tokens``.

    tokens: prompt and output ids in one list. num_computed: how many of them have keys and values in the pool.
    blocks: ids of the pool blocks that hold them, in order; written by the block table alone.
    """

    request: Request
    tokens: list[int] = field(default_factory=list)
    num_computed: int = 0
    blocks: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens known so far."""
        return len(self.tokens)

    @property
    def num_uncomputed(self) -> int:
        """Tokens whose keys and values are still to be computed; 1 while decoding."""
        return len(self.tokens) - self.num_computed

    @property
    def num_output(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def output(self) -> SequenceOf[int]:
        """The generated ids."""
        return self.tokens[len(self.request.prompt) :]

    @property
    def order(self) -> tuple[int, int]:
        """Sort key among sequences: level first, then arrival."""
        return self.request.level, self.request.arrival

    def append(self, token: int) -> FinishReason | None:
        """Add a generated token; return why the sequence ends with it, or None. Order: eos, stop, length."""
        self.tokens.append(token)
        sampling = self.request.sampling
        watch = self.request.stop_watch
        stopped = watch is not None and watch.push(token)
        if token in sampling.end_ids:
            return FinishReason.EOS
        if stopped or token in sampling.stop_ids:
            return FinishReason.STOP
        if self.num_output >= sampling.max_tokens:
            return FinishReason.LENGTH
        return None
