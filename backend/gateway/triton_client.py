"""TritonClient: the running server over gRPC, asynchronously; one call per request, so that leaving it cancels it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from backend.gateway.problems import ServerFailure
from backend.gateway.triton_wire import Piece, piece

_ASK_SECONDS = 5.0
_BACKSTOP_SECONDS = 5.0
_MAX_MESSAGE = 64 << 20


class Tensors(NamedTuple):
    """Names of the inputs and outputs that a model has."""

    inputs: frozenset[str]
    outputs: frozenset[str]


class TritonClient:
    """Must be made in the event loop that uses it. Every method raises ServerFailure."""

    def __init__(self, url: str) -> None:
        """url: host:port. Connects when first used, and again whenever the connection is lost."""
        options = [
            # A proxy from the environment would stand between this and a server on the same machine.
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_send_message_length", _MAX_MESSAGE),
            ("grpc.max_receive_message_length", _MAX_MESSAGE),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        self._channel = grpc.aio.insecure_channel(url, options=options)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def ready(self, model: str) -> bool:
        """Whether the server and this model of it answer requests; False where there is no server."""
        try:
            server = await self._stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=_ASK_SECONDS)
            loaded = await self._stub.ModelReady(service_pb2.ModelReadyRequest(name=model), timeout=_ASK_SECONDS)
        except grpc.RpcError:
            return False
        return bool(server.ready and loaded.ready)

    async def tensors(self, model: str) -> Tensors:
        """What the model takes and gives."""
        try:
            found = await self._stub.ModelMetadata(service_pb2.ModelMetadataRequest(name=model), timeout=_ASK_SECONDS)
        except grpc.RpcError as error:
            raise _failure(error) from None
        return Tensors(frozenset(t.name for t in found.inputs), frozenset(t.name for t in found.outputs))

    async def parameter(self, model: str, key: str) -> str:
        """A parameter of the model's configuration; "" when it is not set."""
        try:
            found = await self._stub.ModelConfig(service_pb2.ModelConfigRequest(name=model), timeout=_ASK_SECONDS)
        except grpc.RpcError as error:
            raise _failure(error) from None
        parameters = found.config.parameters
        return str(parameters[key].string_value) if key in parameters else ""

    async def stream(self, request: service_pb2.ModelInferRequest, seconds: float) -> AsyncGenerator[Piece, None]:
        """The pieces of one request. Leaving the iteration, or its task's end, cancels the generation."""
        call = self._stub.ModelStreamInfer(iter([request]), timeout=seconds + _BACKSTOP_SECONDS)
        failure: ServerFailure | None = None
        try:
            # To the end of the call, beyond the last response, and without the header triton_grpc_error: with it, and
            # calls cancelled as they ended, Triton Server 2.51 was seen to die under a few dozen refusals.
            async for reply in call:
                if reply.error_message:
                    failure = failure or ServerFailure("UNKNOWN", reply.error_message)
                elif (content := piece(reply.infer_response)) is not None:
                    yield content
        except grpc.RpcError as error:
            raise _failure(error) from None
        finally:
            if not call.done():
                call.cancel()
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()


def _failure(error: grpc.RpcError) -> ServerFailure:
    if isinstance(error, grpc.aio.AioRpcError):
        return ServerFailure(error.code().name, error.details() or "")
    return ServerFailure("UNKNOWN", str(error))
