"""Engine: the whole life of a step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import NamedTuple

from backend.endings import FinishReason
from backend.errors import StepInterruptedError
from backend.executor.base import Executor, InterruptibleExecutor, StepHandle
from backend.kv.block_pool import PoolIntegrityError
from backend.request import Request, Sequence
from backend.scheduler.plan import StepPlan, TokenOutput
from backend.scheduler.scheduler import Scheduler

_MOST_IDLE_PLANS = 1000


class StepTrace(NamedTuple):
    """What a step did, for whoever watches, once its tokens are taken in; not of one that failed or was ended early.

    started: on ``time.perf_counter``. work: (request id, first position, tokens) of each sequence. Beams have request
    ids of their own, below 0.
    """

    step: int
    started: float
    seconds: float
    work: list[tuple[int, int, int]]


class Launched(NamedTuple):
    """A step under way."""

    plan: StepPlan
    handle: StepHandle
    trace: StepTrace


class StepFailedError(RuntimeError):
    """A step raised. ``sequences`` are those it touched; they have been ended and their blocks freed.

    outputs: what the step before it brought, which had not been handed out yet.
    """

    def __init__(self, sequences: list[Sequence]) -> None:
        super().__init__("the engine step failed")
        self.sequences = sequences
        self.outputs: list[TokenOutput] = []


class Engine:
    """In-flight batching over one scheduler and one executor. Not thread-safe: one thread calls everything here.

    With ``overlap`` (the normal mode) a step is scheduled and launched before the tokens of the one before it are
    processed, so the executor is at work while texts are cut and responses handed out. Without, each ``step`` call
    runs one step from end to end.

    ``ahead`` goes further: a step is launched while the one before it still runs. It takes an executor that carries
    out all it is given in the order of the launches, as a GPU's stream does. Whatever a later step then does to a
    block comes after all that earlier steps do, so a step's fence completes with its launch.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        *,
        overlap: bool = True,
        ahead: bool = False,
        clock: Callable[[], float] = time.monotonic,
        watch: Callable[[StepTrace], None] = lambda trace: None,
    ) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.watch = watch
        self._executor = executor
        self._interruptible = executor if isinstance(executor, InterruptibleExecutor) else None
        self._overlap = overlap
        self._ahead = ahead and overlap
        self._in_flight: Launched | None = None
        self._tokens: SequenceOf[int] | None = None
        self._idle_plans = 0
        self._last_finished = 0.0

    @property
    def has_work(self) -> bool:
        """Whether ``step`` would find anything to do."""
        return self._in_flight is not None or self.scheduler.has_work

    def add(self, request: Request) -> Sequence:
        """Queue a request; it may join at the next step. Raises InvalidRequest if it could never run."""
        return self.scheduler.add(request)

    def cancel(self, sequence: Sequence, reason: FinishReason = FinishReason.CANCELLED) -> bool:
        """End a sequence now, in any state; False if it had ended before."""
        return self.scheduler.end(sequence, reason)

    def interrupt(self, level: int) -> None:
        """Someone of this level is about to be added: have the step under way end early if all in it are less urgent.

        From any thread. Nothing of such a step counts. Without effect where the executor cannot end a step.
        """
        if self._interruptible is not None:
            self._interruptible.interrupt(level)

    def wait(self) -> None:
        """Wait until the step in flight, if any, has finished. What arrives meanwhile can still join the next one.

        An engine that launches ahead has nothing to wait for: ``step`` keeps the next one from being late.

        Raises StepFailedError if it failed; the other sequences can go on.
        """
        launched = self._in_flight
        if launched is None or self._tokens is not None or self._ahead:
            return
        try:
            self._tokens = launched.handle.collect()
        except StepInterruptedError:
            self._in_flight = None
            self.scheduler.finished(launched.plan.step)
            self.scheduler.retract(launched.plan, self.clock())
            return
        except Exception as error:
            self._in_flight = None
            self.scheduler.finished(launched.plan.step)
            raise StepFailedError(self.scheduler.fail(launched.plan)) from error
        self._in_flight = self._observed(launched)

    def step(self) -> list[TokenOutput]:
        """Plan and launch a step, and take in the one before. Returns new tokens and ends. Raises StepFailedError."""
        self.wait()
        expired: list[TokenOutput] = [(sequence, None) for sequence in self.scheduler.expire(self.clock())]
        if self._ahead:
            return self._step_ahead(expired)
        done, tokens, self._tokens = self._in_flight, self._tokens, None
        self._in_flight = None
        outputs: list[TokenOutput] = []
        if done is not None and done.plan.beams:  # what they bring decides what the next step computes
            outputs, done = self._commit(done, tokens), None
        try:
            self._in_flight = self._launch()
        except StepFailedError as error:
            error.outputs = expired + outputs + self._commit(done, tokens)
            raise
        outputs += self._commit(done, tokens)
        if not self._overlap and self._in_flight is not None:
            try:
                self.wait()
            except StepFailedError as error:
                error.outputs = expired + outputs
                raise
            done, tokens, self._tokens, self._in_flight = self._in_flight, self._tokens, None, None
            outputs += self._commit(done, tokens)
        return expired + outputs

    def _step_ahead(self, outputs: list[TokenOutput]) -> list[TokenOutput]:
        """Launch the next step, then wait for the one before. If that fails, so does what was launched upon it."""
        before, self._in_flight = self._in_flight, None
        failures: list[StepFailedError] = []
        try:
            self._in_flight = self._launch()
        except StepFailedError as error:
            failures.append(error)
        try:
            outputs += self._finish(before)
        except StepFailedError as error:
            error.sequences += self._abandon()
            failures.append(error)
        if failures:
            failure = StepFailedError([sequence for error in failures for sequence in error.sequences])
            failure.outputs = outputs
            raise failure from failures[0]
        return outputs

    def _abandon(self) -> list[Sequence]:
        """Let the step in flight run out and fail: it read what a failed one should have written."""
        launched, self._in_flight = self._in_flight, None
        if launched is None:
            return []
        with contextlib.suppress(Exception):
            launched.handle.collect()
        return self.scheduler.fail(launched.plan)

    def _finish(self, launched: Launched | None) -> list[TokenOutput]:
        if launched is None:
            return []
        try:
            tokens = launched.handle.collect()
        except Exception as error:
            raise StepFailedError(self.scheduler.fail(launched.plan)) from error
        return self._commit(self._observed(launched), tokens)

    def _launch(self) -> Launched | None:
        plan = self.scheduler.schedule(self.clock())
        if plan.empty:
            self._idle_plans += 1
            if self._idle_plans > _MOST_IDLE_PLANS and self.scheduler.has_work:
                raise PoolIntegrityError("sequences wait, and none can ever run")
            return None
        self._idle_plans = 0
        work = [(w.sequence.request.request_id, w.start, w.num_tokens) for w in plan.works()]
        trace = StepTrace(plan.step, time.perf_counter(), 0.0, work)
        try:
            launched = Launched(plan, self._executor.launch(plan), trace)
        except Exception as error:
            self.scheduler.finished(plan.step)  # it never began, and the one before it has finished
            raise StepFailedError(self.scheduler.fail(plan)) from error
        if self._ahead:
            self.scheduler.finished(plan.step)
        return launched

    def _observed(self, launched: Launched) -> Launched:
        """A step that has just finished, with its duration."""
        now = time.perf_counter()
        # A step launched ahead began when the one before it ended.
        seconds = now - max(launched.trace.started, self._last_finished)
        self._last_finished = now
        self.scheduler.finished(launched.plan.step)
        self.scheduler.step_time.observe(launched.plan.num_tokens, seconds)
        return launched._replace(trace=launched.trace._replace(seconds=seconds))

    def _commit(self, done: Launched | None, tokens: SequenceOf[int] | None) -> list[TokenOutput]:
        if done is None or tokens is None:
            return []
        if details := done.handle.details():
            # Before the tokens: whoever takes a token in finds its details there.
            sampling = done.plan.sampling()
            for place, detail in details.items():
                sampling[place].add_detail(detail)
        if done.plan.context:
            for place, logits in done.handle.context().items():
                chunk = done.plan.chunks[place]
                if chunk.sequence.context is not None:
                    chunk.sequence.context[chunk.start] = logits
        outputs = self.scheduler.commit(done.plan, tokens)
        self.watch(done.trace)
        return outputs

    def check_idle(self) -> None:
        """Raise PoolIntegrityError if blocks are missing although nothing is under way."""
        self.scheduler.pool.check_empty()

    def close(self) -> None:
        """End the executor's threads after the step in flight."""
        self._executor.close()
