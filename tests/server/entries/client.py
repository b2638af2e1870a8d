"""A client of any entry for tests: responses as they come, with the types that the model's metadata names."""

import json
import queue
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.server_fixture import RunningServer
from tests.triton_client import ask as ask_ensemble

PATIENCE = 30.0
FRANCE = "The capital of France is"
ONCE = "Once upon a time"
DTYPES = {
    "INT32": np.int32, "BOOL": np.bool_, "FP32": np.float32, "UINT64": np.uint64, "UINT32": np.uint32,
    "BYTES": np.object_, "FP16": np.float16, "INT64": np.int64, "UINT8": np.uint8,
}  # fmt: skip
BATCHED = {"ensemble", "tensorrt_llm_bls", "tensorrt_llm", "ensemble_uint32", "inflight_batcher"}
STREAM = {"tensorrt_llm": "streaming", "llmapi": "streaming", "inflight_batcher": "streaming"}
"""Entry -> its flag for streaming, where that is not ``stream``."""

Fields = dict[str, Any]
Types = Callable[[str], dict[str, str]]


class Reply(NamedTuple):
    """All responses to one request, as lists by output; error: of the one that was one. finals: final markers."""

    responses: list[dict[str, list[Any]]]
    error: str
    finals: int

    def column(self, name: str) -> list[Any]:
        """An output of all responses, flattened."""
        return [value for response in self.responses for value in flat(response.get(name, []))]

    def text(self) -> str:
        return b"".join(self.column("text_output")).decode()


def flat(values: Any) -> list[Any]:
    return [one for value in values for one in flat(value)] if isinstance(values, list) else [values]


def tensors(types: dict[str, str], model: str, fields: Fields) -> list[grpcclient.InferInput]:
    made = []
    for name, value in fields.items():
        array = np.atleast_1d(np.array(value, DTYPES[types[name]]))
        if model in BATCHED and (array.ndim < 2 or (name.endswith("words_list") and array.ndim < 3)):
            array = array[None]
        tensor = grpcclient.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    return made


class Client:
    """One gRPC connection with one stream."""

    def __init__(self, server: RunningServer, types: Types) -> None:
        self._types = types
        self.responses: queue.SimpleQueue[tuple[Any, InferenceServerException | None]] = queue.SimpleQueue()
        self.client = grpcclient.InferenceServerClient(server.grpc_url)
        self.client.start_stream(callback=lambda result, error: self.responses.put((result, error)))

    def send(self, model: str, request_id: str = "", parameters: Any = None, **fields: Any) -> None:
        self.client.async_stream_infer(
            model,
            tensors(self._types(model), model, fields),
            request_id=request_id,
            parameters=parameters,
            enable_empty_final_response=True,
        )

    def receive(self) -> Reply:
        """All responses up to the final one or an error."""
        responses, finals = [], 0
        while not finals:
            result, error = self.responses.get(timeout=PATIENCE)
            if error is not None:
                return Reply(responses, error.message(), finals)
            response = result.get_response()
            finals += response.parameters["triton_final_response"].bool_param
            if response.outputs:
                responses.append({each.name: result.as_numpy(each.name).tolist() for each in response.outputs})
        return Reply(responses, "", finals)

    def ask(self, model: str, **fields: Any) -> Reply:
        self.send(model, **fields)
        return self.receive()


def post(server: RunningServer, path: str, body: Fields) -> tuple[int, str]:
    return post_bytes(server, path, json.dumps(body).encode())


def post_bytes(server: RunningServer, path: str, body: bytes) -> tuple[int, str]:
    request = urllib.request.Request(f"{server.http_url}/v2/models/{path}", body)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def probe(server: RunningServer) -> None:
    """A short greedy request must be answered, and right."""
    answer = ask_ensemble(server.grpc_url, text_input=FRANCE, max_tokens=2, exclude_input_in_output=True)
    assert (answer.error, answer.text) == ("", " Paris.")


def token_request(ids: list[int], count: int, **fields: Any) -> Fields:
    return {"input_ids": ids, "input_lengths": [len(ids)], "request_output_len": [count], **fields}
