"""Between Triton Server's Python objects and ours. With the model classes, the only code that knows pb_utils."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from backend.serving.inputs import Inputs, as_array
from backend.serving.response_stream import Chunk, Failure


def parameters_of(args: Mapping[str, str]) -> dict[str, str]:
    """The ``parameters`` of config.pbtxt: key -> string_value."""
    config = json.loads(args["model_config"])
    return {key: value["string_value"] for key, value in config["parameters"].items()}


def read_inputs(request: Any, names: Mapping[str, str] | None = None) -> Inputs:
    """The request's tensors, copied out of shared memory, which is gone once execute() has returned."""
    return Inputs({tensor.name(): np.array(tensor.as_numpy()) for tensor in request.inputs()}, names)


def error_response(failure: Failure) -> Any:
    """A response that carries nothing but an error."""
    code = getattr(pb_utils.TritonError, failure.code)
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(failure.message, code))


class ServerLog(logging.Handler):
    """Sends the package's log records to Triton Server's log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a record over at the nearest of the server's levels."""
        text = self.format(record)
        if record.levelno >= logging.ERROR:
            pb_utils.Logger.log_error(text)
        elif record.levelno >= logging.WARNING:
            pb_utils.Logger.log_warn(text)
        else:
            pb_utils.Logger.log_info(text)

    @classmethod
    def install(cls, level: str) -> None:
        """Take over the ``backend`` loggers of this process."""
        logger = logging.getLogger("backend")
        logger.setLevel({"verbose": "DEBUG"}.get(level, level.upper()))
        logger.handlers = [cls()]
        logger.propagate = False


class TritonSender:
    """The response sender of one decoupled request, with the outputs that its client asked for."""

    def __init__(self, request: Any, num_input: int, key: int) -> None:
        """key: the engine's id of the request, by which the detokenizer can have it stopped."""
        self._sender = request.get_response_sender()
        # Asked about a request whose final response is on its way, Triton Server 2.51 crashes as a whole.
        self._lock = threading.Lock()
        self._final_sent = False
        self._wanted = frozenset(request.requested_output_names())
        self._num_input = num_input
        self._key = key

    def send(self, chunk: Chunk) -> None:
        """Send one response; the last one with the final flag. Blocks until the server has taken it."""
        response = error_response(chunk.failure) if chunk.failure else self._response(chunk)
        with self._lock:
            self._final_sent = chunk.final
            self._sender.send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if chunk.final else 0)

    def is_cancelled(self) -> bool:
        """Whether the client has gone or cancelled."""
        with self._lock:
            return not self._final_sent and bool(self._sender.is_cancelled())

    def _response(self, chunk: Chunk) -> Any:
        reason = chunk.finish_reason.value if chunk.finish_reason else ""
        outputs: dict[str, tuple[object, type[np.generic]]] = {
            "output_ids": ([chunk.ids], np.int32),
            "sequence_length": ([len(chunk.ids)], np.int32),
            "finish_reason": ([reason.encode()], np.object_),
            "num_input_tokens": ([self._num_input], np.int32),
            "num_output_tokens": ([chunk.num_output], np.int32),
        }
        if chunk.span is not None:
            outputs["text_ids"] = ([chunk.span.ids], np.int32)
            outputs["engine_key"] = ([self._key], np.uint64)
            outputs["text_span"] = ([chunk.span.start, chunk.span.end], np.int32)
        return pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor(name, as_array(values, dtype))
                for name, (values, dtype) in outputs.items()
                if name in self._wanted
            ]
        )
