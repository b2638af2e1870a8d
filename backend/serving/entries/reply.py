"""Reply: the way back to the client of one request at an entry, which may consist of several parts."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from backend.serving.response_stream import Failure
from backend.serving.triton_io import error_response


class Reply:
    """One response sender for all prompts of a request; only the last response of the last one is final."""

    def __init__(self, request: Any, num_parts: int) -> None:
        self._sender = request.get_response_sender()
        self._wanted = frozenset(request.requested_output_names())
        # Asked about a request whose final response is on its way, Triton Server 2.51 crashes as a whole.
        self._lock = threading.Lock()
        self._open_parts = num_parts

    def send(self, outputs: Mapping[str, NDArray[Any]], ends_part: bool) -> None:
        """Send a response with those of the outputs that the client asked for; blocks until the server has it."""
        tensors = [pb_utils.Tensor(name, array) for name, array in outputs.items() if name in self._wanted]
        self._send(pb_utils.InferenceResponse(output_tensors=tensors), ends_part)

    def fail(self, failure: Failure, ends_part: bool = True) -> None:
        """Send an error."""
        self._send(error_response(failure), ends_part)

    def end_part(self) -> None:
        """A part ends without a further response."""
        self._send(None, True)

    def is_cancelled(self) -> bool:
        """Whether the client has gone or cancelled."""
        with self._lock:
            return self._open_parts > 0 and bool(self._sender.is_cancelled())

    def _send(self, response: Any, ends_part: bool) -> None:
        with self._lock:
            if self._open_parts == 0:
                return
            self._open_parts -= ends_part
            flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if self._open_parts == 0 else 0
            if response is not None:
                self._sender.send(response, flags)
            elif flags:
                self._sender.send(flags=flags)
