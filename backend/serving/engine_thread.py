"""The engine's thread: takes what has come in, steps, hands out what came of it, for as long as the model is loaded."""

from __future__ import annotations

import logging
import queue
import threading
from dataclasses import dataclass

from backend.engine import Engine, StepFailedError
from backend.errors import InvalidRequest
from backend.request import Request, Sequence
from backend.scheduler.plan import TokenOutput
from backend.serving.response_stream import ResponseStream
from backend.serving.sender_pool import SenderPool

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Arrival:
    request: Request
    stream: ResponseStream


class EngineThread:
    """Owns the engine while it runs. ``submit`` and ``stop`` may be called from any thread."""

    def __init__(self, engine: Engine, senders: SenderPool) -> None:
        self._engine = engine
        self._senders = senders
        self._inbox: queue.SimpleQueue[_Arrival | None] = queue.SimpleQueue()
        self._streams: dict[int, ResponseStream] = {}
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the engine takes requests."""
        return not self._closed and self._thread.is_alive()

    def submit(self, request: Request, stream: ResponseStream) -> None:
        """Pass a request in. If the engine has ended, the client is told so at once."""
        with self._closing:
            if not self._closed:
                self._inbox.put(_Arrival(request, stream))
                return
        self._fail(request.request_id, stream, "the engine has stopped", "UNAVAILABLE")

    def stop(self) -> None:
        """End the thread after the step under way; whoever is still being served gets an error."""
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._take_inbox():
                self._step()
            self._close("the model is being unloaded", "UNAVAILABLE")
        except Exception:
            _log.exception("the engine thread ended")
            self._close("the engine has failed; the model must be loaded again", "INTERNAL")

    def _take_inbox(self) -> bool:
        """Admit all that has arrived; wait for something if there is no work. False when the thread is to end."""
        while True:
            idle = not self._engine.has_work
            if idle and self._inbox.empty():
                self._engine.check_idle()
            try:
                arrival = self._inbox.get(block=idle)
            except queue.Empty:
                return True
            if arrival is None:
                return False
            self._admit(arrival)

    def _admit(self, arrival: _Arrival) -> None:
        try:
            self._engine.add(arrival.request)
            self._streams[arrival.request.request_id] = arrival.stream
        except InvalidRequest as error:
            self._fail(arrival.request.request_id, arrival.stream, str(error), "INVALID_ARG")

    def _step(self) -> None:
        try:
            outputs = self._engine.step()
        except StepFailedError as error:
            _log.exception("an engine step failed; %d sequences end with an error", len(error.sequences))
            self._end_failed(error.sequences)
            return
        for output in outputs:
            self._deliver(output)

    def _deliver(self, output: TokenOutput) -> None:
        request_id = output.sequence.request.request_id
        stream = self._streams[request_id]
        if output.sequence.finish_reason is not None:
            stream.finish(output.sequence.finish_reason)
            del self._streams[request_id]
        self._senders.submit(stream, request_id)

    def _end_failed(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            request_id = sequence.request.request_id
            self._fail(request_id, self._streams.pop(request_id), "the engine step failed", "INTERNAL")

    def _fail(self, key: int, stream: ResponseStream, message: str, code: str) -> None:
        stream.fail(message, code)
        self._senders.submit(stream, key)

    def _close(self, message: str, code: str) -> None:
        """Refuse what comes from now on, and end with an error whoever is inside or still in the inbox."""
        with self._closing:
            self._closed = True
        while not self._inbox.empty():
            arrival = self._inbox.get()
            if arrival is not None:
                self._streams[arrival.request.request_id] = arrival.stream
        for key, stream in self._streams.items():
            self._fail(key, stream, message, code)
        self._streams.clear()
