"""What is counted of requests and steps. Plain Python: the engine's thread adds numbers, the publisher reads them.

There is no lock: each number has one thread that writes it. ``refuse`` and ``sequences`` belong to the thread of
execute(), all else to the engine's.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backend.endings import FinishReason
from backend.engine import StepTrace
from backend.errors import InvalidRequest
from backend.request import Request, Sequence
from backend.scheduler.beam_group import BeamGroup
from backend.serving.metrics.histogram import Histogram, one_two_five

REFUSED = "refused"
OUTCOMES = (*(reason.value for reason in FinishReason), REFUSED)
NO_LEVEL = "none"
"""The level of what was refused before its level was known."""

FIRST_TOKEN_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30)
GAP_SECONDS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
QUEUE_SECONDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
WHOLE_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120)
STEP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 1)
SEQUENCES = (1, 2, 5, 10, 20)


class LevelCounts:
    """Of the requests of one level."""

    __slots__ = ("gap", "generated_tokens", "outcomes", "prompt_tokens", "queue", "time_to_first_token", "whole")

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.prompt_tokens = self.generated_tokens = 0
        self.time_to_first_token = Histogram(FIRST_TOKEN_SECONDS)
        self.gap = Histogram(GAP_SECONDS)
        self.queue = Histogram(QUEUE_SECONDS)
        self.whole = Histogram(WHOLE_SECONDS)


class RequestCounts:
    """Counts for one request under way. All times are seconds on the engine's clock."""

    __slots__ = ("_counts", "_last", "_level", "_sequence")

    def __init__(self, counts: EngineCounts, sequence: Sequence) -> None:
        self._counts = counts
        self._level = counts.levels[sequence.request.level]
        self._sequence = sequence
        self._last: float | None = None
        self._level.prompt_tokens += sequence.num_prompt

    def token(self, now: float) -> None:
        """A token is handed out."""
        level, last, self._last = self._level, self._last, now
        level.generated_tokens += 1
        if last is None:
            level.time_to_first_token.observe(now - self._sequence.request.arrived)
        else:
            level.gap.observe(now - last)

    def answers(self, group: BeamGroup) -> None:
        """A search has ended: all at once is handed out."""
        self._level.generated_tokens += sum(len(answer.output) for answer in group.answers)

    def end(self, outcome: FinishReason, now: float) -> None:
        """The request has ended. It had a queue time only if it ever got a slot."""
        level, sequence = self._level, self._sequence
        arrived = sequence.request.arrived
        level.outcomes[outcome.value] += 1
        level.whole.observe(now - arrived)
        if sequence.first_scheduled:
            level.queue.observe(sequence.first_scheduled - arrived)
        self._counts.prompt_lengths.observe(sequence.num_prompt)
        self._counts.output_lengths.observe(sequence.num_output)


class EngineCounts:
    """Everything that is counted outside the scheduler, which has counts of its own."""

    def __init__(self, num_levels: int = 3, max_seq_len: int = 1000) -> None:
        self.levels: defaultdict[int, LevelCounts] = defaultdict(LevelCounts)
        for level in range(1, num_levels + 1):
            self.levels[level] = LevelCounts()
        lengths = one_two_five(max_seq_len)
        self.prompt_lengths = Histogram(lengths)
        self.output_lengths = Histogram(lengths)
        self.sequences = Histogram(SEQUENCES)
        self.step_seconds = Histogram(STEP_SECONDS)
        self.steps = self.step_tokens = self.step_sequences = self.last_chunk_tokens = 0
        self.last_step_at = 0.0
        self.loaded_at = time.time()
        self._refused: defaultdict[int | None, int] = defaultdict(int, {None: 0})

    # --- in the engine's thread

    def begin(self, sequence: Sequence) -> RequestCounts:
        """The engine has taken a request in."""
        return RequestCounts(self, sequence)

    def end_unbegun(self, request: Request, outcome: str) -> None:
        """A request has ended before the engine took it in."""
        self.levels[request.level].outcomes[outcome] += 1

    def step(self, trace: StepTrace) -> None:
        """A step has finished."""
        tokens = sum(num for _, _, num in trace.work)
        self.steps += 1
        self.step_tokens += tokens
        self.step_sequences += len(trace.work)
        self.last_chunk_tokens = sum(num for _, _, num in trace.work if num > 1) if tokens > len(trace.work) else 0
        self.last_step_at = time.time()
        self.step_seconds.observe(trace.seconds)

    def watching(self, watch: Callable[[StepTrace], None]) -> Callable[[StepTrace], None]:
        """A watch of the engine's steps that counts them and passes them on."""

        def both(trace: StepTrace) -> None:
            self.step(trace)
            watch(trace)

        return both

    # --- in the thread of execute()

    def refuse(self, level: int | None) -> None:
        """A request was refused at the door. level: None if it was not known."""
        self._refused[level] += 1

    @contextmanager
    def refusals(self, level: int | None) -> Iterator[None]:
        """Counts an InvalidRequest on its way to who answers it."""
        try:
            yield
        except InvalidRequest:
            self.refuse(level)
            raise

    # --- for readers

    def outcomes(self) -> dict[tuple[str, str], int]:
        """(outcome, level) -> requests that ended so."""
        levels = self.levels.copy()
        found = {(outcome, str(level)): n for level, of in levels.items() for outcome, n in of.outcomes.copy().items()}
        for level, count in self._refused.copy().items():
            key = REFUSED, NO_LEVEL if level is None else str(level)
            found[key] = found.get(key, 0) + count
        return found
