"""Entry: what the models that speak another server's language have in common. Subclasses say how to read and write it.

An entry holds no engine: each prompt becomes a request to the model ``inflight_batcher``, and what the engine answers
goes back to the client under other names. It sees its client leave, whole answers included, and then stops the engine.
"""

from __future__ import annotations

import itertools
import json
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import triton_python_backend_utils as pb_utils

from backend import garbage
from backend.errors import InvalidRequest, QueueFullError
from backend.serving.entries.call_queue import Call, CallQueue
from backend.serving.entries.engine_call import EngineCall, Renderer
from backend.serving.entries.reply import Reply
from backend.serving.inputs import Inputs, Tensors
from backend.serving.open_requests import OpenRequests
from backend.serving.request_parser import checked_custom
from backend.serving.response_stream import Failure
from backend.serving.stops import stop
from backend.serving.tracing.context import to_pass_on
from backend.serving.triton_io import ServerLog, chosen_id, error_response, own_parameters, read_inputs

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.02
_LEVELS = range(1, 10)


class Prompt(NamedTuple):
    """One prompt of a request, valid as far as the entry can tell.

    outputs: of the engine, that its renderer reads. level: its order before the engine.
    """

    outputs: tuple[str, ...]
    prepare: Callable[[], Tensors]
    renderer: Renderer
    level: int


class Entry:
    """Base of the Triton Server models that serve as entries; execute() returns at once."""

    def parse(self, inputs: Inputs, parameters: dict[str, object], wanted: frozenset[str]) -> list[Prompt]:
        """The prompts of a request. parameters: the client's, of which those that are left go to the engine.

        wanted: the outputs that the client asked for.

        Raises InvalidRequest.
        """
        raise NotImplementedError

    def load(self, parameters: Mapping[str, str]) -> None:
        """What else a subclass needs of config.pbtxt's parameters. Raises ValueError or OSError for the operator."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Start the queue and the watch. Raises TritonModelException with one line for the operator."""
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
        ServerLog.install("warning")
        try:
            self.load(parameters)
        except (ValueError, OSError) as error:
            raise pb_utils.TritonModelException(str(error)) from error
        self._name = str(args["model_name"])
        self._engine = parameters.get("engine_model") or "inflight_batcher"
        self._default_level = int(parameters.get("default_priority_level") or 2)
        self._prefix = f"{self._name}-{secrets.token_hex(8)}"
        self._numbers = itertools.count(1)
        self._calls: dict[int, EngineCall] = {}
        self._lock = threading.Lock()
        self._queue = CallQueue(int(parameters.get("max_queue_size") or 1024))
        self._requests = OpenRequests(self._cancel, _POLL_SECONDS)

    def execute(self, requests: list[Any]) -> None:
        """Take requests in. Each is answered through its own response sender, refused ones at once."""
        for request in requests:
            try:
                self._take(request)
            except InvalidRequest as error:
                _refuse(request, Failure(str(error), "INVALID_ARG"))
            except QueueFullError as error:
                _refuse(request, Failure(str(error), "UNAVAILABLE"))
            except Exception:
                _log.exception("a request could not be taken in")
                _refuse(request, Failure("the request could not be taken in", "INTERNAL"))

    def _take(self, request: Any) -> None:
        inputs, client_id = read_inputs(request), chosen_id(request)
        if inputs.boolean("stop", False):
            self._stop(request, client_id)
            return
        parameters = json.loads(own_parameters(request) or "{}")
        prompts = self.parse(inputs, parameters, frozenset(request.requested_output_names()))
        custom = checked_custom(parameters)  # here, as a request of a model's own cannot carry all that a client's can
        reply = Reply(request, len(prompts))
        numbers = [next(self._numbers) for _ in prompts]
        trace = to_pass_on(request.trace().get_context())  # here, as it is freed when execute() has returned
        calls = {
            number: EngineCall(
                self._engine,
                f"{self._prefix}-{number}",
                prompt.outputs,
                prompt.prepare,
                prompt.renderer,
                reply,
                timeout=request.timeout(),
                parameters=custom,
                trace=trace,
            )
            for number, prompt in zip(numbers, prompts, strict=True)
        }
        waiting: list[Call] = [*calls.values()]
        self._queue.put(prompts[0].level, waiting)
        with self._lock:
            self._calls = {n: call for n, call in self._calls.items() if not call.ended} | calls
        for number, call in calls.items():
            self._requests.add(number, client_id, call)

    def level(self, inputs: Inputs, parameters: Mapping[str, object]) -> int:
        """The request's level, as far as it can be told before the engine has checked it."""
        if "priority" in inputs:
            return self.order(inputs.integer("priority"))
        asked = parameters.get("request_priority")
        return next((level for level in _LEVELS if asked in (level, str(level))), self._default_level)

    def order(self, priority: int) -> int:
        """The level to wait at with this priority; whether it is a right one the engine will say."""
        return priority if priority in _LEVELS else self._default_level

    def _stop(self, request: Any, client_id: str) -> None:
        """``stop``: end the requests of the same request id, here and, as ensembles hand theirs on, at the engine."""
        if not client_id:
            raise InvalidRequest("stop", "needs the request id of the request to stop")
        self._requests.stop_client(client_id)
        threading.Thread(target=stop, args=(self._engine, client_id), name="stop", daemon=True).start()
        request.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _cancel(self, number: int) -> None:
        with self._lock:
            call = self._calls.get(number)
        if call is not None:
            call.cancel()

    def finalize(self) -> None:
        """Unload. Requests to other models cannot be made any more, so what is open ends with an error."""
        self._queue.close()
        self._requests.close()
        self._fail_open_calls()
        garbage.collect_all()  # see InflightBatcher.finalize; no frame of this thread holds a call any more

    def _fail_open_calls(self) -> None:
        with self._lock:
            calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            if not call.ended:
                call.fail(Failure("the model is being unloaded", "UNAVAILABLE"))


def _refuse(request: Any, failure: Failure) -> None:
    request.get_response_sender().send(error_response(failure), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
