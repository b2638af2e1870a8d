"""Triton Server's gRPC messages: the ensemble's inputs -> a request, a response -> a Piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

Inputs = Mapping[str, Any]
"""The ensemble's input -> a value, or a list of values for those that take several."""

# Input -> Triton data type and the field of InferTensorContents that carries it; of scripts/generate_stream.py, too.
INPUTS = {
    "text_input": ("BYTES", "bytes_contents"),
    "max_tokens": ("INT32", "int_contents"),
    "stream": ("BOOL", "bool_contents"),
    "temperature": ("FP32", "fp32_contents"),
    "top_k": ("INT32", "int_contents"),
    "top_p": ("FP32", "fp32_contents"),
    "min_p": ("FP32", "fp32_contents"),
    "seed": ("UINT64", "uint64_contents"),
    "stop_words": ("BYTES", "bytes_contents"),
    "num_return_sequences": ("INT32", "int_contents"),
    "ignore_eos": ("BOOL", "bool_contents"),
    "min_tokens": ("INT32", "int_contents"),
    "presence_penalty": ("FP32", "fp32_contents"),
    "frequency_penalty": ("FP32", "fp32_contents"),
    "repetition_penalty": ("FP32", "fp32_contents"),
    "embedding_bias": ("FP32", "fp32_contents"),
    "return_log_probs": ("BOOL", "bool_contents"),
    "num_log_probs": ("INT32", "int_contents"),
    "guided_decoding_guide_type": ("BYTES", "bytes_contents"),
    "guided_decoding_guide": ("BYTES", "bytes_contents"),
    "priority": ("INT32", "int_contents"),
    "tenant": ("BYTES", "bytes_contents"),
    "cache_salt": ("BYTES", "bytes_contents"),
    "exclude_input_in_output": ("BOOL", "bool_contents"),
}
OUTPUTS = ("text_output", "sequence_index", "finish_reason", "num_input_tokens", "num_output_tokens")
LOG_PROB_OUTPUTS = ("log_prob_ids", "output_log_probs")
TOP_OUTPUTS = ("top_log_prob_ids", "top_log_probs")
_DTYPES = {"INT32": np.int32, "FP32": np.float32}


@dataclass(frozen=True, slots=True)
class Piece:
    """One response: new text of one choice. reason: "" until the choice ends.

    ids, log_probs: of the n tokens in it; top_ids, top_log_probs: ``[n, k]``; all four only if they were asked for.
    num_input, num_output: tokens of the prompt, and in this piece.
    """

    index: int
    text: str
    reason: str
    num_input: int
    num_output: int
    ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    top_ids: tuple[tuple[int, ...], ...] = ()
    top_log_probs: tuple[tuple[float, ...], ...] = ()


def request(
    model: str, request_id: str, inputs: Inputs, outputs: Sequence[str], level: int, seconds: float
) -> service_pb2.ModelInferRequest:
    """level: of the server's own queue, 0 = its default. seconds: after which the engine ends what it has not done."""
    message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    message.parameters["timeout"].int64_param = max(int(seconds * 1e6), 1)
    if level > 0:
        message.parameters["priority"].uint64_param = level
    add_inputs(message, inputs)
    for name in outputs:
        message.outputs.add(name=name)
    return message


def add_inputs(message: service_pb2.ModelInferRequest, inputs: Inputs) -> None:
    """Put the ensemble's inputs into a request, in their order; each is a batch of one."""
    for name, value in inputs.items():
        datatype, contents = INPUTS[name]
        values = value if isinstance(value, list) else [value]
        tensor = message.inputs.add(name=name, datatype=datatype, shape=[1, len(values)])
        getattr(tensor.contents, contents).extend(values)


def piece(response: service_pb2.ModelInferResponse) -> Piece | None:
    """The response's content; None for the empty one that may end a stream."""
    outputs = {o.name: (o, raw) for o, raw in zip(response.outputs, response.raw_output_contents, strict=True)}
    if "text_output" not in outputs:
        return None

    def array(name: str) -> NDArray[Any]:
        if name not in outputs:
            return np.empty((0, 0))
        output, raw = outputs[name]
        return np.frombuffer(raw, dtype=_DTYPES[output.datatype]).reshape(tuple(output.shape))

    def number(name: str) -> int:
        return int(array(name).reshape(-1)[0])

    return Piece(
        index=number("sequence_index"),
        text=_string(outputs["text_output"][1]),
        reason=_string(outputs["finish_reason"][1]),
        num_input=number("num_input_tokens"),
        num_output=number("num_output_tokens"),
        ids=tuple(array("log_prob_ids").reshape(-1).tolist()),
        log_probs=tuple(array("output_log_probs").reshape(-1).tolist()),
        top_ids=_rows(array("top_log_prob_ids")),
        top_log_probs=_rows(array("top_log_probs")),
    )


def _string(raw: bytes) -> str:
    """The one element of a BYTES tensor: four bytes of length, then the text."""
    return raw[4:].decode("utf-8", "replace")


def _rows(values: NDArray[Any]) -> tuple[tuple[Any, ...], ...]:
    """[1, n, k] -> n rows."""
    return tuple(tuple(row) for row in values.reshape(-1, values.shape[-1]).tolist()) if values.size else ()
