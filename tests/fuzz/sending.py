"""A case on its way to a running server and back: as raw gRPC messages, or as raw bytes over HTTP.

Nothing checks what is sent, unlike in tritonclient; and nothing waits for ever, as ``Bounds`` ends what takes too long.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.fuzz.cases import Case
from tests.server_fixture import RunningServer

_TICK = 0.1
_CHANNEL = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@dataclass
class Outcome:
    """What came of a case. texts: of text_output. finals: final markers, 0 over HTTP, which has none.

    left: the client went before the end. late: it was ended from here, as it took too long. status: of HTTP.
    """

    errors: list[str] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    responses: int = 0
    finals: int = 0
    after_final: int = 0
    left: bool = False
    late: bool = False
    status: int = 0
    broken: str = ""


class Bounds:
    """Ends requests that take more than so many seconds of this process's own time, in which it was not suspended."""

    def __init__(self, seconds: float) -> None:
        self._most = round(seconds / _TICK)
        self._open: dict[int, tuple[int, Callable[[], object], Outcome]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._ticks = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bounds", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def around(self, outcome: Outcome, end: Callable[[], object]) -> Iterator[None]:
        """``end`` is called, and the outcome is late, if the body takes too long."""
        number = next(self._numbers)
        with self._lock:
            self._open[number] = (self._ticks + self._most, end, outcome)
        try:
            yield
        finally:
            with self._lock:
                self._open.pop(number, None)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(_TICK):
            with self._lock:
                self._ticks += 1
                over = [number for number, (end, _, _) in self._open.items() if end <= self._ticks]
                late = [self._open.pop(number) for number in over]
            for _, end, outcome in late:
                outcome.late = True
                end()


class Sender:
    """One connection per service, used from many threads."""

    def __init__(self, server: RunningServer, bounds: Bounds) -> None:
        self._server = server
        self._bounds = bounds
        self._channel = grpc.insecure_channel(server.grpc_url, options=_CHANNEL)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def send(self, case: Case) -> Outcome:
        """The outcome, whatever it is; raises nothing."""
        outcome = Outcome()
        if case.door == "grpc":
            self._send_grpc(case, outcome)
        else:
            self._send_http(case, outcome)
        return outcome

    def _send_grpc(self, case: Case, outcome: Outcome) -> None:
        call = self._stub.ModelStreamInfer(iter([message(case)]))
        with self._bounds.around(outcome, call.cancel):
            try:
                if case.leaves_after == 0:
                    time.sleep(0.002 * (len(case.tensors) % 7))
                    outcome.left = call.cancel()
                for response in call:
                    _read_response(response, outcome)
                    if case.leaves_after is not None and outcome.responses >= case.leaves_after > 0:
                        outcome.left = call.cancel()
            except grpc.RpcError as error:
                if not outcome.left and not outcome.late:
                    outcome.errors.append(str(error.details()))  # type: ignore[attr-defined]

    def _send_http(self, case: Case, outcome: Outcome) -> None:
        connection = http.client.HTTPConnection(self._server.host, self._server.http_port)
        try:
            connection.connect()
            with self._bounds.around(outcome, lambda: _cut(connection)):
                connection.request("POST", f"/v2/models/{case.model}/{case.door}", case.body)
                if case.leaves_after == 0:
                    time.sleep(0.002 * (len(case.body) % 7))
                    outcome.left = True
                    return
                _read_http(case, connection.getresponse(), outcome)
        except (OSError, http.client.HTTPException) as error:
            outcome.broken = "" if outcome.late else repr(error)
        finally:
            connection.close()


def _cut(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def message(case: Case) -> Any:
    """The gRPC message of a case."""
    request = service_pb2.ModelInferRequest(model_name=case.model, id=case.request_id)
    for tensor in case.tensors:
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        request.raw_input_contents.append(tensor.content)
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    for name, value in case.parameters:
        kind = {bool: "bool_param", int: "int64_param", float: "double_param"}.get(type(value), "string_param")
        setattr(request.parameters[name], kind, value)
    return request


def _read_response(response: Any, outcome: Outcome) -> None:
    outcome.after_final += outcome.finals > 0
    if response.error_message:
        outcome.errors.append(response.error_message)
        return
    answer = response.infer_response
    outcome.finals += answer.parameters["triton_final_response"].bool_param
    outcome.responses += 1
    for output, content in zip(answer.outputs, answer.raw_output_contents, strict=True):
        if output.name == "text_output":
            outcome.texts += _strings(content)
        elif output.name == "finish_reason":
            outcome.reasons += [each.decode() for each in _strings(content)]


def _strings(content: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(content):
        size = int.from_bytes(content[at : at + 4], "little")
        found.append(content[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def _read_http(case: Case, response: http.client.HTTPResponse, outcome: Outcome) -> None:
    """Events of a stream that begins with an error, and so has another status than 200, are events all the same."""
    outcome.status = response.status
    if case.door != "generate_stream":
        _read_json(response.read(), outcome)
        return
    for line in response:
        if case.leaves_after is not None and outcome.responses >= case.leaves_after > 0:
            outcome.left = True
            return
        if line.startswith(b"data: "):
            _read_json(line.removeprefix(b"data: "), outcome)
        elif response.status != 200:
            _read_json(line, outcome)
        elif line.strip():
            outcome.broken = f"a line of a stream that is no event: {line[:80]!r}"


def _read_json(data: bytes, outcome: Outcome) -> None:
    if not data.strip():
        return
    try:
        # Triton Server says a bad name again, byte for byte.
        answer = json.loads(data.decode("utf-8", "replace"))
    except ValueError:
        outcome.broken = f"no JSON: {data[:200]!r}"
        return
    if "error" in answer:
        outcome.errors.append(answer["error"])
        return
    outcome.responses += 1
    for name, found in (("text_output", outcome.texts), ("finish_reason", outcome.reasons)):
        value = answer.get(name, [])
        for each in value if isinstance(value, list) else [value]:
            found.append(each.encode() if name == "text_output" else each)
