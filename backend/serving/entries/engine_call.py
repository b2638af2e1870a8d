"""EngineCall: one prompt of a client's request on its way through the engine, made as a request of this model's own.

Triton Server tells a model whether its client has gone, but not the models that this one calls. So the entry watches
its client, and ends the call by a ``stop`` with the call's request id, which is no other's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from backend.serving.entries.reply import Reply
from backend.serving.inputs import Tensors, as_array
from backend.serving.response_stream import Failure
from backend.serving.stops import stop
from backend.serving.tracing.context import NAME as TRACE

_log = logging.getLogger(__name__)


class Renderer(Protocol):
    """Engine responses of one prompt -> responses to the client."""

    def render(self, outputs: Tensors) -> tuple[Tensors | Failure | None, bool]:
        """What to send now, if anything, and whether the prompt's answer is complete with it."""

    def cancelled(self) -> Tensors | Failure:
        """The whole answer to a request that was cancelled before it had begun."""


class EngineCall:
    """Run once, in a thread of its own. ``cancel`` may be called from any thread, at any time, several times."""

    def __init__(
        self,
        engine: str,
        request_id: str,
        outputs: Iterable[str],
        prepare: Callable[[], Tensors],
        renderer: Renderer,
        reply: Reply,
        *,
        timeout: int = 0,
        parameters: Mapping[str, object] | None = None,
        trace: str = "",
    ) -> None:
        """engine: the model's name. outputs: to ask it for; few, as all of a stream stay in shared memory till its end.

        prepare: gives its inputs, and may ask other models; it raises RequestFailed.

        timeout: microseconds, 0 for none. parameters: custom ones. trace: context of the client's request, "" for none.
        """
        self.sender = reply
        self._engine = engine
        self._request_id = request_id
        self._outputs = ["engine_key", "error", *outputs]
        self._prepare = prepare
        self._renderer = renderer
        self._reply = reply
        self._timeout = timeout
        self._parameters = dict(parameters or {})
        self._own = {"announce": as_array([True], np.bool_)}
        if trace:
            self._own[TRACE] = as_array([trace.encode()], np.object_)
        self._lock = threading.Lock()
        self._begun = False
        self._known = False
        self._cancelled = False
        self.ended = False

    @property
    def abandoned(self) -> bool:
        """Whether it was cancelled before it was run."""
        return self._cancelled and not self._begun

    def run(self, started: threading.Event) -> None:
        """Make the request and pass its responses on."""
        with self._lock:
            if self._cancelled:
                return
            self._begun = True
        try:
            self._pass_on(started)
        except RequestFailed as error:
            self._reply.fail(error.failure)
        except Exception as error:
            _log.warning("a request to %s failed: %s", self._engine, error)
            self._reply.fail(Failure("the request to the engine failed", "INTERNAL"))
        finally:
            self.ended = True

    def cancel(self) -> None:
        """End the call, in whatever state it is; nothing happens if it has ended."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            begun, known = self._begun, self._known
        if not begun:
            self._abandon()
        elif known:
            self._stop_soon()

    def fail(self, failure: Failure) -> None:
        """End the call for its client; what the engine still says is not passed on."""
        self.ended = True
        self._reply.fail(failure)

    def _abandon(self) -> None:
        last = self._renderer.cancelled()
        if isinstance(last, Failure):
            self._reply.fail(last)
        else:
            self._reply.send(last, ends_part=True)
        self.ended = True

    def _pass_on(self, started: threading.Event) -> None:
        for outputs in self._responses(self._prepare()):
            if not started.is_set():
                started.set()
                self._engine_has_it()
            if outputs.keys() == {"engine_key"}:
                continue
            rendered, complete = self._renderer.render(outputs)
            if isinstance(rendered, Failure):
                self.fail(rendered)
                continue
            if rendered is not None:
                self._reply.send(rendered, ends_part=complete)
            self.ended = complete
        if not self.ended:
            self._reply.end_part()

    def _responses(self, inputs: Tensors) -> Iterator[dict[str, NDArray[Any]]]:
        request = pb_utils.InferenceRequest(
            request_id=self._request_id,
            model_name=self._engine,
            requested_output_names=self._outputs,
            inputs=[pb_utils.Tensor(name, array) for name, array in (self._own | dict(inputs)).items()],
            timeout=self._timeout,
            parameters=self._parameters,
        )
        for response in request.exec(decoupled=True):
            if self.ended:  # its other sequences: nobody reads them any more
                self.cancel()
            elif response.has_error():
                self.fail(RequestFailed.of(response).failure)
            elif tensors := response.output_tensors():
                outputs = {tensor.name(): np.array(tensor.as_numpy()) for tensor in tensors}
                if "error" in outputs:
                    message, code = outputs["error"].reshape(-1)
                    self.fail(Failure(message.decode(), code.decode()))
                else:
                    yield outputs

    def _engine_has_it(self) -> None:
        with self._lock:
            self._known = True
            cancelled = self._cancelled
        if cancelled:
            self._stop_soon()

    def _stop_soon(self) -> None:
        """In a thread of its own, as the caller may be watching others."""
        threading.Thread(target=stop, args=(self._engine, self._request_id), name="stop", daemon=True).start()


class RequestFailed(Exception):
    """Another model answered with an error, which is to be the client's."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure

    @classmethod
    def of(cls, response: Any) -> RequestFailed:
        """From a response with an error."""
        error = response.error()
        codes = {getattr(pb_utils.TritonError, name): name for name in _CODES}
        return cls(Failure(error.message(), codes.get(error.code(), "INTERNAL")))


_CODES = ("INVALID_ARG", "UNAVAILABLE", "NOT_FOUND", "CANCELLED", "UNSUPPORTED", "UNKNOWN", "INTERNAL")
