"""A gRPC service that says what a test wants Triton Server to say, and keeps what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

BASE_INPUTS = (
    "text_input", "max_tokens", "stream", "temperature", "top_k", "top_p", "min_p", "seed", "stop_words",
    "num_return_sequences", "ignore_eos", "priority", "tenant", "cache_salt",
)  # fmt: skip
BASE_OUTPUTS = ("text_output", "sequence_index", "finish_reason", "num_input_tokens", "num_output_tokens")


@dataclass
class Status:
    """What the call ends with in place of an answer."""

    code: grpc.StatusCode
    details: str


def tensor_bytes(text: str) -> bytes:
    return len(text.encode()).to_bytes(4, "little") + text.encode()


def reply(text: str, reason: str = "", index: int = 0, final: bool = False, **arrays: Any) -> Any:
    """A response of the ensemble; one token per character. arrays: further outputs, without the batch dimension."""
    response = pb.ModelInferResponse()
    response.parameters["triton_final_response"].bool_param = final
    contents: dict[str, tuple[str, list[int], bytes]] = {
        "text_output": ("BYTES", [1, 1], tensor_bytes(text)),
        "finish_reason": ("BYTES", [1, 1], tensor_bytes(reason)),
    }
    numbers = {"sequence_index": index, "num_input_tokens": 5, "num_output_tokens": len(text)}
    for name, value in numbers.items():
        contents[name] = ("INT32", [1, 1], np.int32(value).tobytes())
    for name, value in arrays.items():
        array = np.asarray(value)[None]
        kind = "INT32" if array.dtype.kind == "i" else "FP32"
        contents[name] = (kind, list(array.shape), array.astype(np.int32 if kind == "INT32" else np.float32).tobytes())
    for name, (kind, shape, raw) in contents.items():
        response.outputs.add(name=name, datatype=kind, shape=shape)
        response.raw_output_contents.append(raw)
    return pb.ModelStreamInferResponse(infer_response=response)


def hello(_: pb.ModelInferRequest) -> Iterator[Any]:
    yield reply("Hel")
    yield reply("lo", "length", final=True)


@dataclass
class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """answer: request -> responses, or a Status. left: set when a call ended before its answer did."""

    tokenizer_dir: str
    inputs: tuple[str, ...] = BASE_INPUTS
    outputs: tuple[str, ...] = BASE_OUTPUTS
    answer: Callable[[pb.ModelInferRequest], Iterator[Any]] = hello
    is_ready: bool = True
    asked: list[pb.ModelInferRequest] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def ServerReady(self, request: Any, context: Any) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self.is_ready)

    def ModelReady(self, request: Any, context: Any) -> pb.ModelReadyResponse:
        return pb.ModelReadyResponse(ready=self.is_ready)

    def ModelMetadata(self, request: Any, context: Any) -> pb.ModelMetadataResponse:
        response = pb.ModelMetadataResponse(name=request.name)
        for name in self.inputs:
            response.inputs.add(name=name)
        for name in self.outputs:
            response.outputs.add(name=name)
        return response

    def ModelConfig(self, request: Any, context: Any) -> pb.ModelConfigResponse:
        response = pb.ModelConfigResponse()
        response.config.parameters["tokenizer_dir"].string_value = self.tokenizer_dir
        return response

    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        request = next(requests)
        self.asked.append(request)
        context.add_callback(self.left.set)
        for each in self.answer(request):
            if isinstance(each, Status):
                context.abort(each.code, each.details)
            yield each

    def start(self) -> grpc.Server:
        server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, server)
        port = server.add_insecure_port("127.0.0.1:0")
        self.url = f"127.0.0.1:{port}"
        server.start()
        return server


def sent(request: pb.ModelInferRequest) -> dict[str, Any]:
    """Input -> its values, as one value where there is one."""
    values = {}
    for tensor in request.inputs:
        (found,) = [list(value) for _, value in tensor.contents.ListFields()] or [[False]]
        assert list(tensor.shape) == [1, len(found)]
        values[tensor.name] = found[0] if len(found) == 1 else found
    return values
