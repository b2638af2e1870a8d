"""Requests that a model makes to the engine's to have others ended."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from backend.serving.inputs import as_array
from backend.serving.triton_io import NOBODYS_KEY

_log = logging.getLogger(__name__)


def stop(model: str, request_id: str = "", key: int | None = None) -> None:
    """Have the engine end the request of this key; without one, the requests of this id. Returns when it has them."""
    for response in _request(model, request_id, key).exec(decoupled=True):
        if response.has_error():
            _log.warning("a stop was refused: %s", response.error().message())


def look_once_more(model: str, request_id: str) -> None:
    """Make a request of this id that stops nobody. That it is refused where the queue is full does no harm."""
    for _ in _request(model, request_id, NOBODYS_KEY).exec(decoupled=True):
        pass


def _request(model: str, request_id: str, key: int | None) -> Any:
    """What ``stop`` sends."""
    own = [] if key is None else [pb_utils.Tensor("engine_key", as_array([key], np.uint64))]
    return pb_utils.InferenceRequest(
        request_id=request_id,
        model_name=model,
        requested_output_names=[],
        inputs=[
            pb_utils.Tensor("stop", as_array([True], np.bool_)),
            pb_utils.Tensor("input_ids", as_array([0], np.int32)),
            pb_utils.Tensor("request_output_len", as_array([1], np.int32)),
            *own,
        ],
    )
