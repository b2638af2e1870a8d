"""Between Triton Server's Python objects and ours. With the model classes, the only code that knows pb_utils."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from backend.errors import ConfigError, InvalidRequest
from backend.serving.inputs import Inputs, as_array
from backend.serving.response_stream import Chunk, Failure

_log = logging.getLogger(__name__)
NOBODYS_KEY = 0


def parameters_of(args: Mapping[str, str]) -> dict[str, str]:
    """The ``parameters`` of config.pbtxt: key -> string_value."""
    config = json.loads(args["model_config"])
    return {key: value["string_value"] for key, value in config["parameters"].items()}


def check_single_instance(args: Mapping[str, str]) -> None:
    """Raise ConfigError unless config.pbtxt asks for one instance: each would hold a whole model."""
    groups = json.loads(args["model_config"]).get("instance_group", [])
    count = sum(int(group.get("count", 1)) for group in groups)
    if count > 1:
        raise ConfigError(
            f"instance_group: {count} instances, exactly 1 is allowed: each would load the whole model and share "
            "nothing; more requests at a time are max_batch_size"
        )


def check_no_batching(args: Mapping[str, str]) -> None:
    """Raise ConfigError if config.pbtxt gives a detokenizer a queue of its own.

    Its executions come in the midst of streams: batched, the chunks of one stream overtake each other; and a stream
    whose chunk a full queue refuses hangs for ever on Triton Server 2.51.
    """
    if json.loads(args["model_config"]).get("dynamic_batching") is not None:
        raise ConfigError("dynamic_batching: not allowed here, as chunks would overtake each other and streams hang")


def read_inputs(request: Any, names: Mapping[str, str] | None = None) -> Inputs:
    """The request's tensors, copied out of shared memory, which is gone once execute() has returned."""
    return Inputs({tensor.name(): np.array(tensor.as_numpy()) for tensor in request.inputs()}, names)


def own_parameters(request: Any) -> str:
    """The request's own parameters as a JSON object, "" where it has none. Raises InvalidRequest."""
    try:
        return str(request.parameters())
    except UnicodeDecodeError as error:  # Triton Server hands on what stood in the body
        raise InvalidRequest("parameters", "a name or a text in them is not valid UTF-8") from error


def chosen_id(request: Any) -> str:
    """The request id that its client has chosen, "" for none. Raises InvalidRequest."""
    try:
        return str(request.request_id())
    except UnicodeDecodeError as error:
        raise InvalidRequest("id", "not valid UTF-8") from error


def all_have_id(requests: list[Any], request_id: str) -> bool:
    """Whether each of these has this request id."""

    def has_it(request: Any) -> bool:
        with contextlib.suppress(InvalidRequest):
            return chosen_id(request) == request_id
        return False

    return all(map(has_it, requests))


def answered(respond: Callable[[], Any], what: str) -> Any:
    """The response that ``respond`` makes. An error instead if it raises; what nobody expected says no more than
    ``what``, as the server would tell the client the whole stack.
    """
    try:
        return respond()
    except InvalidRequest as error:
        return error_response(Failure(str(error), "INVALID_ARG"))
    except Exception:
        _log.exception(what)
        return error_response(Failure(what, "INTERNAL"))


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


class TritonRequest:
    """The way back of one decoupled request, with the outputs that its client asked for.

    A request for several sequences has as many members; only the last response of the last of them is final.
    """

    def __init__(self, request: Any, num_input: int, num_members: int, left_out: frozenset[str] = frozenset()) -> None:
        """left_out: outputs not to be sent, though they stand in every response."""
        self._sender = request.get_response_sender()
        # Asked about a request whose final response is on its way, Triton Server 2.51 crashes as a whole.
        self._lock = threading.Lock()
        self._open_members = num_members
        self.wanted = frozenset(request.requested_output_names()) - left_out
        self.num_input = num_input
        self.announced = False

    def member(self, index: int, key: int) -> TritonSender:
        """The sender of sequence ``index``. key: by which the detokenizer stops it, and nobody who was not told it."""
        return TritonSender(self, index, key)

    def announce(self, key: int) -> None:
        """Say, before anything else, that the engine has the request; to a model that made it and waits for a sign.

        From then on a failure is told as an output: Triton Server 2.51 loses errors that a model gets in answer to a
        request of its own, if they are not the first response.
        """
        self.announced = True
        tensor = pb_utils.Tensor("engine_key", as_array([key], np.uint64))
        self._sender.send(pb_utils.InferenceResponse(output_tensors=[tensor]))

    def send(self, response: Any, last: bool) -> None:
        """Send one response. Blocks until the server has taken it. last: whether a member ends with it."""
        with self._lock:
            self._open_members -= last
            final = self._open_members == 0
            self._sender.send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if final else 0)

    def is_cancelled(self) -> bool:
        """Whether the client has gone or cancelled."""
        with self._lock:
            return self._open_members > 0 and bool(self._sender.is_cancelled())


class TritonSender:
    """The response sender of one sequence of a request."""

    def __init__(self, request: TritonRequest, index: int, key: int) -> None:
        self._request = request
        self._index = index
        self._key = key
        # Making a tensor costs more than sending it, and it may be sent again: one sender is of one thread.
        self._made: dict[tuple[str, object], Any] = {}

    def send(self, chunk: Chunk) -> None:
        """Send one response; blocks until the server has taken it."""
        if chunk.failure and not self._request.announced:
            response = error_response(chunk.failure)
        else:
            response = pb_utils.InferenceResponse(output_tensors=list(self._tensors(chunk)))
        self._request.send(response, chunk.final)

    def is_cancelled(self) -> bool:
        """Whether the client has gone or cancelled."""
        return self._request.is_cancelled()

    def _tensors(self, chunk: Chunk) -> Iterator[Any]:
        wanted = self._request.wanted - chunk.extra.keys()
        for name, value, dtype in self._repeated(chunk):
            if name in wanted:
                yield self._again(name, value, dtype)
        for name, values, dtype in self._new(chunk):
            if name in wanted:
                yield pb_utils.Tensor(name, as_array(values, dtype))
        for name, array in chunk.extra.items():
            if name in self._request.wanted:
                yield pb_utils.Tensor(name, array[None])

    def _repeated(self, chunk: Chunk) -> Iterator[tuple[str, Hashable, type[np.generic]]]:
        """Outputs of one element that has few values in a request's life."""
        yield "sequence_index", self._index, np.int32
        yield "finish_reason", chunk.finish_reason.value.encode() if chunk.finish_reason else b"", np.object_
        yield "num_input_tokens", self._request.num_input, np.int32
        yield "num_output_tokens", chunk.num_output, np.int32
        yield "sequence_length", len(chunk.ids), np.int32
        if chunk.span is not None:
            # Whoever has all needs not ask whether the client has gone.
            yield "engine_key", NOBODYS_KEY if chunk.final else self._key, np.uint64

    def _new(self, chunk: Chunk) -> Iterator[tuple[str, object, type[np.generic]]]:
        yield "output_ids", [chunk.ids], np.int32
        if chunk.failure is not None:
            yield "error", [each.encode() for each in chunk.failure], np.object_
        if chunk.span is not None:
            yield "text_ids", [chunk.span.ids], np.int32
            yield "text_span", [chunk.span.start, chunk.span.end], np.int32

    def _again(self, name: str, value: Hashable, dtype: type[np.generic]) -> Any:
        found = self._made.get((name, value))
        if found is None:
            found = self._made[name, value] = pb_utils.Tensor(name, as_array([value], dtype))
        return found
