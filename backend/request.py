"""Request: what was asked, immutable. Sequence: how far it is, one cursor."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.endings import BeamWatch, FinishReason, StopWatch
from backend.guide import NoToken, problem_of
from backend.sampling_params import SamplingParams
from backend.token_detail import TokenDetail

if TYPE_CHECKING:
    from backend.scheduler.beam_group import BeamGroup

_NO_TOKENS = frozenset(int(outcome) for outcome in NoToken)


class State(enum.Enum):
    """Where a sequence stands. A preempted one is waiting again."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    FINISHED = enum.auto()


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a client asked for. Never changes after validation.

    request_id: the engine's own number, unique in its life. level: 1 is the most urgent. arrival: a number that grows
    with each request; the order among equals. arrived: seconds on the scheduler's clock. deadline: seconds on that
    clock after which nobody wants the answer, or None. tenant: whose fair share it uses. salt: prefixes are shared only
    among requests of the same salt. leader: request_id of another request with the same prompt whose computed prompt
    this one is to share (the further sequences of ``num_return_sequences``), or None. stop_watch: of the one output's
    text. trace: the trace context under which its life is told, as a JSON object of W3C's headers, or "".
    beam_watch: in stop_watch's place where beams are searched.
    """

    request_id: int
    prompt: tuple[int, ...]
    sampling: SamplingParams
    level: int
    arrival: int
    arrived: float = 0.0
    deadline: float | None = None
    tenant: str = ""
    salt: str = ""
    leader: int | None = None
    stop_watch: StopWatch | None = None
    trace: str = ""
    beam_watch: BeamWatch | None = None

    @property
    def max_tokens_held(self) -> int:
        """Token slots of the pool that the request can come to need: the last token is never read back."""
        return len(self.prompt) + self.sampling.max_tokens - 1


class Sequence:
    """One request under way. ``num_computed`` is the one cursor; it chases ``num_tokens``.

    tokens: prompt and output ids in one list. num_computed: how many of them have, or will have once the steps launched
    so far have run, keys and values in the pool. It may reach num_tokens while a step's token is not known yet.
    blocks: ids of the pool blocks that hold them, in order. host_slots: where a swapped-out sequence's blocks lie.
    capacity: tokens that the cursor may reach without asking for blocks; never beyond ``limit``, where the length ends.
    ends: tokens that may end it. watch: the request's stop watch. quiet_until: with fewer tokens than this, another one
    that is none of its ends needs no further look: the sequence runs, has filled no block and is not at its length.
    problem: why it ends with reason error, for the client, where its own wishes are the cause.
    details: of the output tokens, in order, that nobody has fetched yet; None where nobody asked for any.
    num_reused_blocks, num_new_blocks: blocks it was given in its life that others had computed, and that it computes
    itself. first_scheduled: when it first got a slot, on the scheduler's clock; 0.0 before.
    context: float32 logits ``[n, vocab]`` of the prompt's positions from the key on, where they were asked for.
    group: of beams, of which it is the root or a branch; None for all others.
    """

    __slots__ = (
        "awaits_token",
        "blocks",
        "capacity",
        "context",
        "details",
        "ends",
        "finish_reason",
        "first_scheduled",
        "group",
        "host_slots",
        "limit",
        "num_charged",
        "num_computed",
        "num_new_blocks",
        "num_preemptions",
        "num_prompt",
        "num_published",
        "num_reused_blocks",
        "problem",
        "published",
        "quiet_until",
        "request",
        "reserved",
        "state",
        "swapped_tokens",
        "tokens",
        "watch",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.tokens: list[int] = list(request.prompt)
        self.num_prompt = len(request.prompt)
        self.limit = request.max_tokens_held
        self.num_computed = 0
        self.capacity = 0
        self.blocks: list[int] = []
        self.host_slots: list[int] = []
        self.swapped_tokens = 0
        self.published: object | None = None
        self.num_published = 0
        self.reserved = False
        self.awaits_token = False
        self.num_preemptions = 0
        self.num_charged = 0
        self.quiet_until = 0
        self.state = State.WAITING
        self.finish_reason: FinishReason | None = None
        sampling = request.sampling
        self.ends = sampling.end_ids | sampling.stop_ids | {words[-1] for words in sampling.stop_sequences}
        if sampling.guide is not None:
            self.ends |= _NO_TOKENS
        self.problem = ""
        self.watch = request.stop_watch
        self.details: deque[TokenDetail] | None = deque() if sampling.detailed else None
        self.num_reused_blocks = self.num_new_blocks = 0
        self.first_scheduled = 0.0
        self.group: BeamGroup | None = None
        self.context: dict[int, bytes] | None = {} if sampling.context_logits else None

    def __repr__(self) -> str:
        return f"Sequence({self.request.request_id}, {self.num_computed}/{self.num_tokens}, {self.state.name})"

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens known so far."""
        return len(self.tokens)

    @property
    def num_uncomputed(self) -> int:
        """Known tokens whose keys and values are still to be computed."""
        return len(self.tokens) - self.num_computed

    @property
    def num_output(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.num_prompt

    @property
    def output(self) -> SequenceOf[int]:
        """The generated ids."""
        return self.tokens[self.num_prompt :]

    @property
    def order(self) -> tuple[int, int]:
        """Sort key among sequences: level first, then arrival."""
        return self.request.level, self.request.arrival

    @property
    def slots(self) -> int:
        """Slots that it takes when it runs: one for each beam."""
        return 1 if self.group is None else self.group.width

    @property
    def held(self) -> SequenceOf[int]:
        """The blocks it holds, those of its branches among them, one as often as it holds it."""
        if self.group is None or self.group.root is not self:
            return self.blocks
        return [*self.blocks, *(block for branch in self.group.branches for block in branch.blocks)]

    @property
    def num_kept(self) -> int:
        """Tokens with keys and values in the pool, which are lost if its blocks are: those of its beams among them."""
        if self.group is None:
            return self.num_computed
        return self.num_computed + sum(b.num_computed - b.num_prompt for b in self.group.branches)

    @property
    def owner(self) -> Sequence:
        """Itself, or the root that stands for it among those that wait and run."""
        return self if self.group is None else self.group.root

    def add_detail(self, detail: TokenDetail) -> None:
        """Of the token that is appended next; of a sequence that has ended, none will be."""
        if self.details is not None and self.state is not State.FINISHED:
            self.details.append(detail)

    def append(self, token: int) -> FinishReason | None:
        """Add a generated token; return why the sequence ends with it, or None. Order: eos, stop, length.

        A ``NoToken`` is not added: the sequence ends where it stands.
        """
        if token < 0:
            return self._end_without(NoToken(token))
        tokens = self.tokens
        tokens.append(token)
        stopped = self.watch is not None and self.watch.push(token)
        if token in self.ends and token in self.request.sampling.end_ids:
            return FinishReason.EOS
        if stopped or (token in self.ends and self.request.sampling.stops(tokens, self.num_output)):
            return FinishReason.STOP
        # The token that would be sampled from the last slot is the last one.
        if len(tokens) > self.limit:
            return FinishReason.LENGTH
        return None

    def _end_without(self, outcome: NoToken) -> FinishReason:
        """No token can follow: the output is whole, or what was asked for cannot be."""
        self.problem = problem_of(outcome, self.num_output)
        return FinishReason.ERROR if self.problem else FinishReason.STOP
