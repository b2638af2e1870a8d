"""Where spans go: an OTLP/HTTP collector."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from backend.errors import ConfigError

_PATH = "/v1/traces"
_TIMEOUT_SECONDS = 5.0
_QUEUE, _BATCH, _DELAY_MS = 8192, 512, 1000.0
SERVICE = "inflight_batcher"


def traces_url(endpoint: str) -> str:
    """Where a collector takes traces. endpoint: its base address, as http://localhost:4318. Raises ConfigError."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"parameter otlp_endpoint: {endpoint!r} is no http(s)://host:port of a collector")
    path = parts.path.rstrip("/")
    return endpoint if path.endswith(_PATH) else endpoint.rstrip("/") + _PATH


def provider(endpoint: str) -> Any:
    """A TracerProvider whose spans are sent in batches by a thread of its own. Raises ConfigError.

    A collector that is slow or away costs spans, which are dropped beyond a queue's length, and nothing else.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(f"parameter otlp_endpoint: needs the packages of the extra tracing ({error})") from error
    exporter = OTLPSpanExporter(traces_url(endpoint), timeout=_TIMEOUT_SECONDS)
    processor = BatchSpanProcessor(
        exporter, max_queue_size=_QUEUE, max_export_batch_size=_BATCH, schedule_delay_millis=_DELAY_MS
    )
    made = TracerProvider(resource=Resource.create({"service.name": SERVICE}), shutdown_on_exit=False)
    made.add_span_processor(processor)
    return made
