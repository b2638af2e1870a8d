"""RequestSpans: one request's life as OpenTelemetry spans.

    request            from its arrival to its end; its parent is the server's span
    ├─ queued          until it first gets a slot
    ├─ running         while it has one
    │  ├─ chunk        one step's share of the prompt, or of what a preemption left to be computed again
    │  └─ chunk
    ├─ preempted       mode: swap or recompute
    └─ running
       └─ chunk

Decode steps have no spans of their own: there is one per token. Events of the request: admitted, preempted, resumed,
first_token, ended. Spans are made when it is known how they end, so their times are given, not taken.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from backend.endings import FinishReason
from backend.scheduler.life import PREEMPTIONS, Change
from backend.serving.tracing.recorder import Arrived, Changed

NAME = "inflight_batcher.request"
_EVENTS = {Change.ADMITTED: "admitted", Change.RESUMED: "resumed", Change.ENDED: "ended"}


class _Stay(NamedTuple):
    """A time with a slot."""

    at: float
    span: Any
    counts: dict[str, int]


class RequestSpans:
    """Told of what happens in order, times in seconds on ``time.perf_counter``; ``finish`` is the last."""

    def __init__(self, tracer: Any, arrived: Arrived) -> None:
        """tracer: an OpenTelemetry Tracer."""
        self._tracer = tracer
        self._offset = time.time_ns() - time.perf_counter_ns()
        self._num_prompt = arrived.num_prompt
        self._arrived = arrived.at
        self._events: list[tuple[float, str, dict[str, Any]]] = []
        self._stays: list[_Stay] = []
        self._most_computed = 0
        self._num_preemptions = 0
        self._first_token: float | None = None
        self._ended: Changed | None = None
        attributes = {
            "inflight.request_id": arrived.request_id,
            "inflight.level": arrived.level,
            "gen_ai.usage.input_tokens": arrived.num_prompt,
            "gen_ai.request.max_tokens": arrived.max_tokens,
        }
        self._root = tracer.start_span(
            NAME, parent_of(arrived.trace), start_time=self._nanoseconds(arrived.at), attributes=attributes
        )
        self._now = self._child("queued", arrived.at)

    def change(self, change: Changed) -> None:
        """It got a slot, lost it, or ended."""
        self._now.end(self._nanoseconds(change.at))
        name, attributes = _EVENTS.get(change.change, "preempted"), dict[str, Any]()
        if change.change is Change.ENDED:
            self._ended = change
            attributes = {"reason": change.reason}
        elif change.change in PREEMPTIONS:
            self._num_preemptions += 1
            attributes = {"mode": PREEMPTIONS[change.change]}
            self._now = self._child("preempted", change.at, attributes)
        else:
            attributes = {"computed_tokens": change.computed}
            self._now = self._child("running", change.at, attributes)
            self._stays.append(_Stay(change.at, self._now, {}))
        self._events.append((change.at, name, attributes))

    def work(self, step: int, started: float, ended: float, start: int, tokens: int) -> None:
        """A step computed ``tokens`` tokens from position ``start`` on."""
        again = start < self._most_computed
        self._most_computed = max(self._most_computed, start + tokens)
        if self._first_token is None and start + tokens >= self._num_prompt:
            self._first_token = ended
            self._events.append((ended, "first_token", {"step": step}))
        if start >= self._num_prompt and not again:
            return
        stay = next((stay for stay in reversed(self._stays) if stay.at <= started), None)
        attributes = {"step": step, "first_position": start, "tokens": tokens, "again": again}
        parent = trace.set_span_in_context(stay.span if stay else self._root)
        span = self._tracer.start_span("chunk", parent, start_time=self._nanoseconds(started), attributes=attributes)
        span.end(self._nanoseconds(ended))

    @property
    def ended(self) -> bool:
        """Whether the request has ended."""
        return self._ended is not None

    def finish(self) -> None:
        """Nothing more will be told of it. One that has not ended is cut off here."""
        if self._ended is None:
            at = time.perf_counter()
            self._now.end(self._nanoseconds(at))
            self._root.set_status(trace.StatusCode.ERROR, "cut off")
        else:
            at = self._ended.at
            self._root.set_attributes(self._last_attributes(self._ended))
            if self._ended.reason == FinishReason.ERROR:
                self._root.set_status(trace.StatusCode.ERROR, self._ended.problem)
        for when, name, attributes in sorted(self._events, key=lambda event: event[0]):
            self._root.add_event(name, attributes, self._nanoseconds(when))
        self._root.end(self._nanoseconds(at))

    def _last_attributes(self, ended: Changed) -> Mapping[str, Any]:
        attributes: dict[str, Any] = {
            "gen_ai.usage.output_tokens": ended.num_output,
            "gen_ai.response.finish_reasons": [ended.reason],
            "inflight.preemptions": self._num_preemptions,
        }
        if self._first_token is not None:
            attributes["inflight.time_to_first_token"] = self._first_token - self._arrived
        return attributes

    def _child(self, name: str, at: float, attributes: Mapping[str, Any] | None = None) -> Any:
        parent = trace.set_span_in_context(self._root)
        return self._tracer.start_span(name, parent, start_time=self._nanoseconds(at), attributes=attributes)

    def _nanoseconds(self, seconds: float) -> int:
        """Unix time."""
        return self._offset + int(seconds * 1e9)


def parent_of(carrier: str) -> Any:
    """The OpenTelemetry context that the server's JSON object of headers stands for."""
    return TraceContextTextMapPropagator().extract(json.loads(carrier))
