"""Errors in OpenAI's form, and what the server's own errors are in it.

server says                          client gets
INVALID_ARGUMENT                     400, the server's words with OpenAI's field names
UNAVAILABLE, queue full              429, Retry-After
UNAVAILABLE                          503
DEADLINE_EXCEEDED, its own timeout   504
anything else                        502, without the server's words, which may name files
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from backend.errors import one_line

RETRY_SECONDS = 1
_LONGEST = 1000
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
_NO_ROOM = re.compile(r"needs \d+ tokens \(prompt (\d+) \+ max_tokens \d+\), .*?(\d+)")
_QUEUE_FULL = "Exceeds maximum queue size"
_EXPIRED = "Request timeout expired"
_GONE = re.compile(r"Request for unknown model|is shutting down|is not ready|not available|unavailable")


class ApiError(Exception):
    """What a client gets in place of an answer. param: the field at fault, None if it is none's."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        # A lone surrogate cannot be sent; whoever sends one, or a line's end, may get it back in the name of a field.
        self.message = one_line(message.encode("utf-8", "replace").decode(), _LONGEST)

    def body(self) -> dict[str, Any]:
        """The JSON object that OpenAI's clients read."""
        kind = _TYPES.get(self.status, "server_error")
        param = one_line(self.param.encode("utf-8", "replace").decode()) if self.param is not None else None
        return {"error": {"message": self.message, "type": kind, "param": param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        """Headers that go with the status."""
        if self.status == 401:
            return {"www-authenticate": "Bearer"}
        return {"retry-after": str(RETRY_SECONDS)} if self.status in (429, 503) else {}


class ServerFailure(Exception):
    """The server's error: the name of its gRPC status, UNKNOWN if it gave none, and its words."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, " ".join(message.split())

    @property
    def gone(self) -> bool:
        """Whether the server may be another one when it answers again."""
        by_words = self.status == "UNKNOWN" and _GONE.search(self.message) is not None
        return (by_words or self.status in ("UNAVAILABLE", "NOT_FOUND")) and not self.queue_full

    @property
    def queue_full(self) -> bool:
        """Whether the server's queue refused the request."""
        return _QUEUE_FULL in self.message

    def room(self) -> int:
        """How many tokens would have fitted, where too many were asked for; else 0."""
        found = _NO_ROOM.search(self.message)
        return max(int(found[2]) - int(found[1]), 0) if found else 0


def refused(field: str, problem: str, code: str | None = None) -> ApiError:
    """The error for a field's value."""
    return ApiError(400, f"{field}: {problem}", param=field, code=code)


def from_server(failure: ServerFailure, names: Mapping[str, str]) -> ApiError:
    """The client's error for the server's. names: the ensemble's input -> the client's field."""
    if failure.queue_full:
        message = "the server's queue is full: Exceeds maximum queue size; try again later"
        return ApiError(429, message, code="queue_full")
    if failure.status == "DEADLINE_EXCEEDED" or _EXPIRED in failure.message:
        return timed_out()
    if (invalid := _invalid(failure, names)) is not None:
        return invalid
    if failure.gone or failure.status == "CANCELLED":
        return not_ready()
    return ApiError(502, "the model server failed to answer", code="upstream_error")


def timed_out() -> ApiError:
    """The answer took longer than the gateway lets it."""
    return ApiError(504, "the answer took longer than this gateway allows", code="timeout")


def not_ready() -> ApiError:
    """There is no server, or it is starting or ending."""
    return ApiError(503, "the model server is not ready or is shutting down", code="not_ready")


def _invalid(failure: ServerFailure, names: Mapping[str, str]) -> ApiError | None:
    """The words after the field's name are the server's; what Triton Server puts before it is left out."""
    code = "context_length_exceeded" if _NO_ROOM.search(failure.message) else None
    for found in re.finditer(r"(?:^|, |\] )(\w+): ", failure.message):
        if found[1] in names:
            return refused(names[found[1]], failure.message[found.end() :], code)
    return None
