"""A thin gRPC client of the ensemble: one prompt in, pieces of text out as they are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from backend.gateway.triton_wire import add_inputs

MODEL = "ensemble"
CONNECT_SECONDS = 5.0


class Piece(NamedTuple):
    """What one response of the server brought: new text and the number of tokens in it."""

    text: str
    tokens: int


class Finished(NamedTuple):
    """How a request among many ended: its number among them, its tokens, and the server's error if there was one."""

    number: int
    tokens: int
    error: str


class Arrival(NamedTuple):
    """A response to a request among many: its number among them, whether it is its last, the server's error or ""."""

    number: int
    piece: Piece
    last: bool
    error: str


class ServerError(Exception):
    """The server, or the way to it, failed; the message is one line."""


class Client:
    """One connection to the server at `url` (host:port of its gRPC service)."""

    def __init__(self, url: str) -> None:
        # A proxy from the environment would stand between this and a server on the same machine.
        self._channel = grpc.insecure_channel(url, options=[("grpc.enable_http_proxy", 0)])
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._url = url

    def connect(self) -> None:
        """Raise ServerError unless a server answers and its models are ready."""
        try:
            ready = self._stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=CONNECT_SECONDS).ready
        except grpc.RpcError as error:
            raise ServerError(
                f"no server answers at {self._url}; start one with scripts/serve, or name another with --url"
            ) from error
        if not ready:
            raise ServerError(f"the server at {self._url} is not ready yet")

    def parameter(self, model: str, key: str) -> str:
        """A parameter from the configuration of `model`; empty when it is not set. Raises ServerError."""
        try:
            config = self._stub.ModelConfig(service_pb2.ModelConfigRequest(name=model), timeout=CONNECT_SECONDS).config
        except grpc.RpcError as error:
            raise ServerError(_details(error)) from error
        return str(config.parameters[key].string_value) if key in config.parameters else ""

    def generate(self, inputs: Mapping[str, Any], queue_priority: int = 0) -> Iterator[Piece]:
        """Send one request and yield its responses; leaving the iteration cancels it. Raises ServerError.

        queue_priority: the level in the server's own queue, 0 = its default; the engine's is the input `priority`.
        """
        call = self._stub.ModelStreamInfer(iter([_request(inputs, queue_priority)]))
        failure = ""
        try:
            # To the end of the call, beyond the last response: of each call that is cancelled as it ends, Triton
            # Server 2.51 keeps some 14 KB for good.
            for reply in call:
                if reply.error_message:
                    failure = failure or " ".join(reply.error_message.split())
                else:
                    yield _piece(reply.infer_response)
        except grpc.RpcError as error:
            raise ServerError(_details(error)) from error
        finally:
            call.cancel()
        if failure:
            raise ServerError(failure)

    def generate_all(self, inputs: Sequence[Mapping[str, Any]], queue_priority: int = 0) -> Iterator[Finished]:
        """Send all requests at once over one stream and yield each as it ends, refused ones too. Raises ServerError."""
        tokens = [0] * len(inputs)
        for arrival in self.generate_together(inputs, queue_priority):
            tokens[arrival.number] += arrival.piece.tokens
            if arrival.last:
                yield Finished(arrival.number, tokens[arrival.number], arrival.error)

    def generate_together(self, inputs: Sequence[Mapping[str, Any]], queue_priority: int = 0) -> Iterator[Arrival]:
        """Send all requests at once over one stream and yield their responses as they come. Raises ServerError."""
        requests = [_request(one, queue_priority, str(number)) for number, one in enumerate(inputs)]
        left = len(requests)
        try:
            for reply in self._stub.ModelStreamInfer(iter(requests)):
                response, error = reply.infer_response, " ".join(reply.error_message.split())
                last = bool(error) or response.parameters["triton_final_response"].bool_param
                left -= last
                yield Arrival(int(response.id), _piece(response), last, error)
        except grpc.RpcError as error:
            raise ServerError(_details(error)) from error
        if left:
            raise ServerError(f"{left} requests had no end")

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def _details(error: grpc.RpcError) -> str:
    details = error.details() if isinstance(error, grpc.Call) else None
    return " ".join((details or str(error)).split())


def _request(
    inputs: Mapping[str, Any], queue_priority: int, request_id: str = ""
) -> service_pb2.ModelInferRequest:  # fmt: skip
    request = service_pb2.ModelInferRequest(model_name=MODEL, id=request_id)
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    if queue_priority:
        request.parameters["priority"].uint64_param = queue_priority
    add_inputs(request, inputs)
    for name in ("text_output", "num_output_tokens"):
        request.outputs.add(name=name)
    return request


def _piece(response: service_pb2.ModelInferResponse) -> Piece:
    """Read the two outputs; a final response may carry neither."""
    raw = {output.name: content for output, content in zip(response.outputs, response.raw_output_contents, strict=True)}
    # A BYTES element is preceded by its length in four bytes.
    text = raw.get("text_output", b"")[4:].decode("utf-8", "replace")
    return Piece(text, int.from_bytes(raw.get("num_output_tokens", b""), "little", signed=True))
