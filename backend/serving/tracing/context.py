"""A trace context that comes as an input, ``trace_context``: what requests of the entries' own are part of.

Triton Server hands a model's own request no trace unless it gets the trace object of the client's. That object is freed
when ``execute`` has returned, before an entry makes its request, so entries pass on what the context says in its place.
"""

from __future__ import annotations

import json
import re

from backend.errors import InvalidRequest, shown
from backend.serving.inputs import Inputs

NAME = "trace_context"
MAX_BYTES = 2048
_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_HEADERS = {"traceparent", "tracestate"}


def to_pass_on(context: str | None) -> str:
    """What the engine takes of a context that Triton Server gives, "" if nothing: tracing costs nobody a request."""
    try:
        headers = json.loads(context or "{}")
        parent, state = headers.get("traceparent"), headers.get("tracestate")
    except (ValueError, AttributeError):
        return ""
    if not isinstance(parent, str) or not _PARENT.fullmatch(parent):
        return ""
    whole = json.dumps({"traceparent": parent, "tracestate": state})
    # A state may be of any length, and spans are joined without it.
    return whole if isinstance(state, str) and len(whole) <= MAX_BYTES else json.dumps({"traceparent": parent})


def trace_context(inputs: Inputs) -> str:
    """A JSON object of W3C's headers, as Triton Server writes it, or "" if there is none. Raises InvalidRequest."""
    text = inputs.string(NAME) if NAME in inputs else ""
    if not text:
        return ""
    if len(text.encode()) > MAX_BYTES:
        raise InvalidRequest(NAME, f"{len(text.encode())} bytes, at most {MAX_BYTES} are allowed")
    try:
        headers = json.loads(text)
    except (ValueError, RecursionError):
        headers = None
    if not isinstance(headers, dict) or not headers.keys() <= _HEADERS:
        raise InvalidRequest(NAME, f"{shown(text)} is not a JSON object of traceparent and tracestate")
    parent, state = headers.get("traceparent"), headers.get("tracestate", "")
    if not isinstance(parent, str) or not _PARENT.fullmatch(parent):
        raise InvalidRequest(NAME, f"traceparent {shown(parent)} is not as W3C writes it")
    if not isinstance(state, str):
        raise InvalidRequest(NAME, f"tracestate {shown(state)} is not a string")
    return text
