"""Recorder: takes down in the engine's thread what happens to traced requests, for a thread that makes spans of it.

The engine's thread appends plain tuples to a queue, for traced requests only; it never waits and makes no span.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import NamedTuple

from backend.engine import Engine, StepTrace
from backend.request import Sequence
from backend.scheduler.life import Change, LifeWatch

_MOST_HELD = 100_000
"""Records that may wait for the spans' thread before new requests are no longer traced."""


class Arrived(NamedTuple):
    """A traced request has been taken in. at: seconds on ``time.perf_counter``, as everywhere here, of its arrival."""

    request_id: int
    at: float
    trace: str
    level: int
    num_prompt: int
    max_tokens: int


class Changed(NamedTuple):
    """Something happened to a traced request. reason, problem, num_output: of one that has ended. computed: tokens that
    need not be computed when it gets a slot, as they were found in the prefix cache or lay in host memory.
    """

    request_id: int
    at: float
    change: Change
    reason: str
    problem: str
    num_output: int
    computed: int


class Stepped(NamedTuple):
    """A step has finished that computed something for traced requests. work: as StepTrace's, of those alone."""

    step: int
    started: float
    ended: float
    work: list[tuple[int, int, int]]


Record = Arrived | Changed | Stepped


class Recorder:
    """records: what has been taken down, oldest first; None where there is nothing more to come."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: that of ``Request.arrived``."""
        self.records: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self.num_left_out = 0
        self._clock = clock
        self._open: set[int] = set()
        self._ended: set[int] = set()

    def attach(self, engine: Engine) -> None:
        """Take down what this engine does from now on, beside whoever watches it already."""
        population = engine.scheduler.population
        engine.watch = _both(engine.watch, self.step)
        population.watch = self._after(population.watch)

    def step(self, trace: StepTrace) -> None:
        """A step has finished. Who ended by it is still part of it."""
        if not self._open:
            return
        work = [each for each in trace.work if each[0] in self._open]
        if work:
            self.records.put(Stepped(trace.step, trace.started, trace.started + trace.seconds, work))
        self._open -= self._ended
        self._ended.clear()

    def change(self, sequence: Sequence, change: Change) -> None:
        """Something happened to a request, traced or not."""
        request = sequence.request
        if not request.trace:
            return
        now = time.perf_counter()
        if change is Change.QUEUED:
            if self.records.qsize() > _MOST_HELD:
                self.num_left_out += 1
                return
            self._open.add(request.request_id)
            arrived = now - (self._clock() - request.arrived)
            prompt, output = len(request.prompt), request.sampling.max_tokens
            self.records.put(Arrived(request.request_id, arrived, request.trace, request.level, prompt, output))
        elif request.request_id in self._open:
            reason = sequence.finish_reason.value if sequence.finish_reason else ""
            of = sequence.problem, sequence.num_output, sequence.num_computed
            self.records.put(Changed(request.request_id, now, change, reason, *of))
            if change is Change.ENDED:
                self._ended.add(request.request_id)

    def _after(self, watch: LifeWatch) -> LifeWatch:
        def both(sequence: Sequence, change: Change) -> None:
            watch(sequence, change)
            self.change(sequence, change)

        return both


def _both(first: Callable[[StepTrace], None], second: Callable[[StepTrace], None]) -> Callable[[StepTrace], None]:
    def both(trace: StepTrace) -> None:
        first(trace)
        second(trace)

    return both
