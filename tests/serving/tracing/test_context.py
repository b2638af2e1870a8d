"""The trace context that an entry passes on with its own request, and what else comes under that name."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from backend.errors import InvalidRequest
from backend.serving.inputs import Inputs
from backend.serving.tracing.context import MAX_BYTES, to_pass_on, trace_context

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
WHOLE = json.dumps({"traceparent": PARENT, "tracestate": "vendor=1"})


def given(text: str) -> str:
    return trace_context(Inputs({"trace_context": np.array([[text.encode()]], np.object_)}, {}))


def test_w3cs_headers_are_taken_as_they_come_and_nothing_is_none() -> None:
    assert given(WHOLE) == WHOLE
    assert given("") == ""
    assert trace_context(Inputs({}, {})) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (PARENT, "is not a JSON object of traceparent and tracestate"),
        ("[" * 2000, "is not a JSON object"),
        (json.dumps([PARENT]), "is not a JSON object"),
        (json.dumps({"traceparent": PARENT, "baggage": "a=1"}), "is not a JSON object of traceparent and tracestate"),
        (json.dumps({"tracestate": "vendor=1"}), "traceparent None is not as W3C writes it"),
        (json.dumps({"traceparent": PARENT + "0"}), "traceparent .* is not as W3C writes it"),
        (json.dumps({"traceparent": PARENT, "tracestate": 1}), "tracestate 1 is not a string"),
        (json.dumps({"traceparent": PARENT, "tracestate": "v" * MAX_BYTES}), f"bytes, at most {MAX_BYTES} are allowed"),
    ],
)
def test_what_is_no_context_is_refused_in_one_short_line(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^trace_context: .*{problem}") as refused:
        given(text)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("servers", "passed_on"),
    [
        (WHOLE, json.loads(WHOLE)),
        (json.dumps({"traceparent": PARENT}), {"traceparent": PARENT}),
        (json.dumps({"traceparent": PARENT, "1700000000": "CUSTOM"}), {"traceparent": PARENT}),
        (json.dumps({"traceparent": PARENT, "tracestate": "v" * MAX_BYTES}), {"traceparent": PARENT}),
    ],
)
def test_the_engine_takes_whatever_an_entry_passes_on_of_a_servers_context(servers: str, passed_on: Any) -> None:
    assert json.loads(given(to_pass_on(servers))) == passed_on


@pytest.mark.parametrize("servers", [None, "", "no json", "[]", "{}", json.dumps({"traceparent": "none"})])
def test_what_is_no_context_of_a_server_is_not_passed_on(servers: str | None) -> None:
    assert to_pass_on(servers) == ""


class Server(ModuleType):
    """In place of Triton Server: remembers what models ask it for, and answers nothing."""

    def __init__(self) -> None:
        super().__init__("triton_python_backend_utils")
        self.asked: list[dict[str, Any]] = []
        self.Tensor = lambda name, array: (name, array)
        self.InferenceRequest = self._request

    def _request(self, **arguments: Any) -> Any:
        self.asked.append(arguments)
        return SimpleNamespace(exec=lambda decoupled: iter(()))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Modules that import it are imported anew, for this test alone."""
    server = Server()
    monkeypatch.setitem(sys.modules, server.__name__, server)
    for name in [name for name in sys.modules if name.startswith("backend.serving")]:
        monkeypatch.delitem(sys.modules, name)
    return server


@pytest.mark.parametrize("trace", [WHOLE, ""])
def test_the_entrys_request_to_the_engine_has_the_context_of_its_clients_and_no_freed_trace(
    server: Server, trace: str
) -> None:
    engine_call = importlib.import_module("backend.serving.entries.engine_call")
    reply = SimpleNamespace(end_part=lambda: None)
    ids = {"input_ids": np.array([[1, 2]], np.int32)}
    call = engine_call.EngineCall("engine", "7", ["output_ids"], lambda: ids, None, reply, trace=trace)
    call.run(threading.Event())
    (asked,) = server.asked
    sent = dict(asked["inputs"])
    assert sent["input_ids"] is ids["input_ids"]
    assert trace_context(Inputs({k: v for k, v in sent.items() if k == "trace_context"}, {})) == trace
    assert "trace" not in asked  # Triton Server would use the trace after it has freed it
