"""A collector for tests: takes OTLP/HTTP traces, in JSON as the server sends them or as protobuf, as the SDK does."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

PATIENCE = 20.0


@dataclass(frozen=True)
class Span:
    """ids as hexadecimal digits, times in nanoseconds; parent "" for none."""

    service: str
    name: str
    trace: str
    own: str
    parent: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: tuple[str, ...]


class Receiver:
    """spans: all that came, in the order of coming."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.kinds: set[str] = set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.take(self.path, self.headers["content-type"], body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, path: str, kind: str, body: bytes) -> None:
        assert path == "/v1/traces", path
        self.kinds.add(kind)
        request = ExportTraceServiceRequest()
        if "json" in kind:
            json_format.ParseDict(_with_base64_ids(json.loads(body)), request)
        else:
            request.ParseFromString(body)
        for resource in request.resource_spans:
            service = _values(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                self.spans += [_span(service, span) for span in scope.spans]

    def wait_for(self, name: str, count: int = 1) -> list[Span]:
        """The spans of this name once there are so many, or what there is after a while."""
        deadline = time.monotonic() + PATIENCE
        while len(found := [span for span in self.spans if span.name == name]) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _with_base64_ids(node: Any) -> Any:
    """OTLP's JSON has ids in hexadecimal, protobuf's own mapping wants them in base64."""
    if isinstance(node, list):
        return [_with_base64_ids(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: base64.b64encode(bytes.fromhex(value)).decode()
        if key in ("traceId", "spanId", "parentSpanId")
        else _with_base64_ids(value)
        for key, value in node.items()
    }


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value") for each in attributes}


def _span(service: str, span: Any) -> Span:
    return Span(
        service=service,
        name=span.name,
        trace=span.trace_id.hex(),
        own=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        attributes=_values(span.attributes),
        events=tuple(event.name for event in span.events),
    )
