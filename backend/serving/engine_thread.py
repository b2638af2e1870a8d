"""The engine's thread: takes what has come in, steps, hands out what came of it, for as long as the model is loaded."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from backend.endings import FinishReason
from backend.engine import Engine, StepFailedError
from backend.errors import InvalidRequest
from backend.request import Request, Sequence
from backend.scheduler.plan import TokenOutput
from backend.serving.metrics.counts import REFUSED, EngineCounts, RequestCounts
from backend.serving.pace import Pace
from backend.serving.response_stream import ResponseStream
from backend.serving.sender_pool import SenderPool

_log = logging.getLogger(__name__)
_NOBODY = 1 << 30  # a level less urgent than any


class _Arrival(NamedTuple):
    request: Request
    stream: ResponseStream


class _Cancel(NamedTuple):
    request_id: int


class _Stop(NamedTuple):
    why: str


class _Open(NamedTuple):
    """A request that has not ended."""

    sequence: Sequence
    stream: ResponseStream
    counts: RequestCounts


def _level(of: tuple[Sequence, *tuple[object, ...]]) -> int:
    """Of a step's output, or of an open request."""
    return of[0].request.level


class EngineThread:
    """Owns the engine while it runs. ``submit``, ``cancel`` and ``stop`` may be called from any thread.

    on_step: called after each step, in the engine's thread; it must be quick. on_death: called when the thread has
    ended by a failure and everyone has been told. counts: of requests; this thread adds to it. pace: of the responses
    between a stream's first and its last, which wait for nothing.
    """

    def __init__(
        self,
        engine: Engine,
        senders: SenderPool,
        on_step: Callable[[], None] = lambda: None,
        on_death: Callable[[], None] = lambda: None,
        counts: EngineCounts | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._engine = engine
        self._senders = senders
        self._on_step = on_step
        self._on_death = on_death
        self._counts = counts or EngineCounts()
        self._pace = pace or Pace(0.0)
        self._now = 0.0
        self.beats = 0
        self.busy = False
        self._inbox: queue.SimpleQueue[_Arrival | _Cancel | _Stop] = queue.SimpleQueue()
        self._open: dict[int, _Open] = {}
        self._closing = threading.Lock()
        self._closed = False
        self._refusing = ""
        self._arriving = _NOBODY
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the engine takes requests."""
        return not self._closed and self._thread.is_alive()

    @property
    def num_held(self) -> int:
        """Requests taken in that have no slot yet."""
        return self._engine.scheduler.num_waiting + self._inbox.qsize()

    def submit(self, request: Request, stream: ResponseStream) -> None:
        """Pass a request in. If the engine has ended, the client is told so at once."""
        with self._closing:
            if not self._closed and not self._refusing:
                self._inbox.put(_Arrival(request, stream))
                self._arriving = min(self._arriving, request.level)
                self._engine.interrupt(request.level)
                return
        self._counts.refuse(request.level)
        self._fail(request.request_id, stream, self._refusing or "the engine has stopped", "UNAVAILABLE")

    def refuse(self, why: str) -> None:
        """Take no new request from now on; those that are open go on."""
        with self._closing:
            self._refusing = why

    @property
    def num_open(self) -> int:
        """Requests that have been taken in and have not ended."""
        return len(self._open) + self._inbox.qsize()

    def cancel(self, request_id: int) -> None:
        """End a request, in whatever state it is; nothing happens if it has ended, or never was."""
        if not self._closed:
            self._inbox.put(_Cancel(request_id))

    def stop(self, why: str = "the model is being unloaded") -> None:
        """End the thread after the step under way; whoever is still being served gets an error. May be called again."""
        self._inbox.put(_Stop(why))
        self._thread.join()

    def _run(self) -> None:
        try:
            while (stop := self._take_inbox()) is None:
                self._step()
            self._close(stop.why, "UNAVAILABLE")
            self.busy = False
        except Exception:
            _log.exception("the engine thread ended")
            self.give_up("the engine has failed; the model must be loaded again")
        else:
            self._engine.close()

    def give_up(self, message: str) -> None:
        """End everyone with an error; the model cannot serve any more. From any thread, if this one is stuck."""
        self._close(message, "INTERNAL")
        self._on_death()

    def _take_inbox(self) -> _Stop | None:
        """Carry out all that has come in; wait for something if there is no work. A _Stop when the thread is to end."""
        self._wait_for_step()
        self._arriving = _NOBODY
        self.beats += 1
        while True:
            idle = not self._engine.has_work
            self.busy = not idle
            if idle and self._inbox.empty():
                self._engine.check_idle()
            try:
                command = self._inbox.get(block=idle)
            except queue.Empty:
                return None
            if isinstance(command, _Stop):
                return command
            self._carry_out(command)

    def _carry_out(self, command: _Arrival | _Cancel) -> None:
        if isinstance(command, _Arrival):
            self._admit(command)
        elif command.request_id in self._open:
            sequence = self._open[command.request_id].sequence
            self._engine.cancel(sequence)
            self._now = self._engine.clock()
            self._deliver((sequence, None))

    def _admit(self, arrival: _Arrival) -> None:
        try:
            sequence = self._engine.add(arrival.request)
            arrival.stream.follow(sequence)
            counts = self._counts.begin(sequence)
            self._open[arrival.request.request_id] = _Open(sequence, arrival.stream, counts)
        except InvalidRequest as error:
            self._counts.end_unbegun(arrival.request, REFUSED)
            self._fail(arrival.request.request_id, arrival.stream, str(error), "INVALID_ARG")

    def _wait_for_step(self) -> None:
        """Until the step under way has finished: what arrives in that time can still join the next one."""
        try:
            self._engine.wait()
        except StepFailedError as error:
            self._end_failed(error)

    def _step(self) -> None:
        try:
            outputs = self._engine.step()
        except StepFailedError as error:
            self._end_failed(error)
            return
        # Whoever came while the step was planned has found none to interrupt.
        self._engine.interrupt(self._arriving)
        self._now = self._engine.clock()
        # The most urgent first: each response takes the senders as long as some of a step's layers take the executor.
        for output in sorted(outputs, key=_level):
            self._deliver(output)
        self._send_on()
        self._on_step()

    def _send_on(self) -> None:
        """Have streams that have begun sent what they have, when it is their time."""
        streaming = [(number, found) for number, found in self._open.items() if found.stream.streams_on]
        down_to = self._pace.due(self._now, Counter(_level(found) for _, found in streaming))
        for number, found in streaming:
            if _level(found) <= down_to:
                self._senders.submit(found.stream, number)

    def _deliver(self, output: TokenOutput) -> None:
        sequence, token = output
        request_id = sequence.request.request_id
        found = self._open.get(request_id)
        if found is None:
            return  # cancelled between the step and now, and told so
        if token is not None:
            found.stream.deliver(token)
            found.counts.token(self._now)
        if sequence.finish_reason is not None:
            if sequence.problem:
                found.stream.fail(sequence.problem, "INVALID_ARG")
            if sequence.group is not None:
                found.counts.answers(sequence.group)
            found.stream.finish(sequence.finish_reason)
            found.counts.end(sequence.finish_reason, self._now)
            del self._open[request_id]
        if sequence.finish_reason is not None or not found.stream.streams_on:
            self._senders.submit(found.stream, request_id)

    def _end_failed(self, error: StepFailedError) -> None:
        _log.error("an engine step failed; %d sequences end with an error", len(error.sequences), exc_info=error)
        self._now = self._engine.clock()
        for output in error.outputs:
            if output[0].finish_reason is not FinishReason.ERROR:
                self._deliver(output)
        for sequence in error.sequences:
            request_id = sequence.request.request_id
            self._fail_open(self._open.pop(request_id), "the engine step failed", "INTERNAL")

    def _fail_open(self, found: _Open, message: str, code: str) -> None:
        found.counts.end(FinishReason.ERROR, self._engine.clock())
        self._fail(found.sequence.request.request_id, found.stream, message, code)

    def _fail(self, key: int, stream: ResponseStream, message: str, code: str) -> None:
        stream.fail(message, code)
        self._senders.submit(stream, key)

    def _close(self, message: str, code: str) -> None:
        """Refuse what comes from now on, and end with an error whoever is inside or still in the inbox."""
        with self._closing:
            self._closed = True
        while not self._inbox.empty():
            command = self._inbox.get()
            if isinstance(command, _Arrival):
                self._counts.end_unbegun(command.request, FinishReason.ERROR.value)
                self._fail(command.request.request_id, command.stream, message, code)
        for found in list(self._open.values()):
            self._fail_open(found, message, code)
        self._open.clear()
