"""Tracing: whether requests are traced, chosen once at load."""

from __future__ import annotations

from typing import Any, Protocol

from backend.engine import Engine
from backend.serving.tracing.recorder import Recorder


class Tracing(Protocol):
    """Told of the beginning and the end of an engine's life, and asked of each request."""

    def context(self, request: Any, given: str) -> str:
        """The trace context of one of Triton Server's requests, as the engine's Request wants it; "" for none.

        given: its input ``trace_context``.
        """

    def start(self, engine: Engine) -> None:
        """Watch this engine."""

    def close(self) -> None:
        """The engine has ended."""


class NoTracing:
    """Requests are not traced."""

    def context(self, request: Any, given: str) -> str:  # noqa: ARG002
        """None."""
        return ""

    def start(self, engine: Engine) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class SpanTracing:
    """Requests for which the server has a trace are told to a collector."""

    def __init__(self, provider: Any) -> None:
        """provider: the SDK's TracerProvider; ``close`` shuts it down."""
        self._provider = provider

    def context(self, request: Any, given: str) -> str:
        """What the server passes on, or else the entry; neither has one for a request that is not sampled."""
        return str(request.trace().get_context() or given)

    def start(self, engine: Engine) -> None:
        """Watch this engine, and begin to make spans."""
        # Only here are the packages of the extra known to be there.
        from backend.serving.tracing.span_maker import SpanMaker

        recorder = Recorder(engine.clock)
        recorder.attach(engine)
        self._maker = SpanMaker(recorder, self._provider)
        self._maker.start()

    def close(self) -> None:
        """What was recorded is handed on, within a few seconds."""
        self._maker.close()


def tracing_of(endpoint: str) -> Tracing:
    """endpoint: a collector's address, "" for none. Raises ConfigError."""
    if not endpoint:
        return NoTracing()
    from backend.serving.tracing.export import provider

    return SpanTracing(provider(endpoint))
