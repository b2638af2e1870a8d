"""ResponseStream: what one request has produced and its client has not been sent yet.

The engine thread writes (push, finish, fail), a sender thread reads (take). When the sender is slower than the engine,
several tokens go into one response by themselves: take() hands out all that there is.
"""

from __future__ import annotations

import threading
from typing import NamedTuple, Protocol

from backend.endings import FinishReason
from backend.request import Sequence
from backend.serving.extra_outputs import NOTHING, Arrays, ExtraOutputs
from backend.text.text_stream import TextSpan, TextStream


class Failure(NamedTuple):
    """An error for this client alone. code: name of a Triton Server error code."""

    message: str
    code: str


class Chunk(NamedTuple):
    """One response. ids: new tokens (with the prompt first, where it is echoed). num_output: new tokens.

    extra: further outputs by name, without the batch dimension; one of the names above stands for that one.
    """

    ids: list[int]
    span: TextSpan | None
    num_output: int
    finish_reason: FinishReason | None
    failure: Failure | None
    final: bool
    extra: Arrays = NOTHING


class ResponseSender(Protocol):
    """Triton Server's response sender of one decoupled request."""

    def send(self, chunk: Chunk) -> None:
        """Hand over one response; blocks until the server has it."""

    def is_cancelled(self) -> bool:
        """Whether the client has gone or cancelled; a round trip to the server."""


class ResponseStream:
    """One request's way back to its client. Exactly one chunk is final, and none follows it."""

    def __init__(
        self,
        sender: ResponseSender,
        *,
        streaming: bool,
        echo: tuple[int, ...],
        text: TextStream | None,
        watches: bool = False,
        extra: ExtraOutputs | None = None,
        interval: int = 1,
    ) -> None:
        """watches: the stream is its request's stop watch, and so sees each token before it is delivered.

        extra: what gathers the outputs that only this client asked for. interval: tokens that a streamed response waits
        for. The first does not, so that the time to it stays what it is, nor does the last.
        """
        self.sender = sender
        self.streaming = streaming
        self.watches = watches
        self._lock = threading.Lock()
        self._text = text
        self._extra = extra
        self._ids = list(echo)
        self._num_output = 0
        self._interval = interval
        self._due = 1
        self._reason: FinishReason | None = None
        self._failure: Failure | None = None
        self._queued = False
        self._begun = False
        self._closed = False

    def follow(self, sequence: Sequence) -> None:
        """The engine has taken the request in as this sequence."""
        if self._extra is not None:
            self._extra.follow(sequence)

    def deliver(self, token_id: int) -> None:
        """Take a token that a step has brought, unless it came by ``push`` already."""
        if not self.watches:
            self.push(token_id)

    def push(self, token_id: int) -> bool:
        """Take a generated token; True when the text now holds a stop string."""
        with self._lock:
            self._ids.append(token_id)
            self._num_output += 1
            if self._extra is not None:
                self._extra.push(token_id)
            return self._text is not None and self._text.push(token_id)

    @property
    def streams_on(self) -> bool:
        """Whether it streams and its first chunk has been taken."""
        return self.streaming and self._begun

    @property
    def ended(self) -> bool:
        """Whether the last chunk has been taken."""
        return self._closed

    def finish(self, reason: FinishReason) -> None:
        """The sequence has ended."""
        with self._lock:
            self._reason = self._reason or reason

    def fail(self, message: str, code: str) -> None:
        """End with an error, unless the end had been reached before."""
        with self._lock:
            if self._reason is None:
                self._reason, self._failure = FinishReason.ERROR, Failure(message, code)

    def wants_sending(self) -> bool:
        """Whether to hand the stream to a sender now: it has something to send, and stands in no sender's queue."""
        with self._lock:
            if self._queued or self._closed or not (self._reason or self._streams_now()):
                return False
            self._queued = True
            return True

    def _streams_now(self) -> bool:
        return self.streaming and self._num_output >= self._due and (self._text is None or self._text.ready())

    def take(self) -> Chunk | None:
        """All that is new, as one chunk; None when there is nothing to say."""
        with self._lock:
            self._queued = False
            final = self._reason is not None
            if self._closed or not (final or self._streams_now()):
                return None
            self._begun, self._closed = True, final
            span = self._text.take(final) if self._text is not None else None
            extra = self._extra.take(final) if self._extra is not None else NOTHING
            chunk = Chunk(self._ids, span, self._num_output, self._reason, self._failure, final, extra)
            self._ids, self._num_output, self._due = [], 0, self._interval
            return chunk
