"""_Row of TensorRT-LLM's token model -> the engine's inputs, one set for each prompt of the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.errors import InvalidRequest, shown
from backend.serving.entries import retention
from backend.serving.entries.refusals import UNSERVED, refuse_unserved
from backend.serving.inputs import Inputs, as_array

_Row = dict[str, NDArray[Any]]
MAX_BATCH = 64
_OWN = frozenset({"input_ids", "input_lengths", "end_id", "runtime_top_p", "stop", *UNSERVED, *retention.NAMES})
_REQUEST_TYPES = ("context_and_generation",)


def prompts_of(inputs: Inputs, parameters: dict[str, object]) -> list[_Row]:
    """The engine's inputs for each prompt; takes the parameters that end here out of ``parameters``.

    Raises InvalidRequest. What goes to the engine as it came is checked there.
    """
    _check_parameters(parameters)
    refuse_unserved(inputs)
    count = len(_rows(inputs, "input_ids"))
    if not 1 <= count <= MAX_BATCH:
        raise InvalidRequest("input_ids", f"a batch of {count}, allowed is [1, {MAX_BATCH}]")
    for name in inputs:
        if len(_rows(inputs, name)) != count:
            raise InvalidRequest(name, f"a batch of {len(_rows(inputs, name))}, input_ids is one of {count}")
    return [_row(inputs, index) for index in range(count)]


def _rows(inputs: Inputs, name: str) -> NDArray[Any]:
    if name not in inputs:
        raise InvalidRequest(name, "is required")
    return inputs.array(name)


def _check_parameters(parameters: dict[str, object]) -> None:
    """TensorRT-LLM's ``request_type``, and ``Streaming``, which its own client sends beside the tensor."""
    kind = parameters.pop("request_type", _REQUEST_TYPES[0])
    if kind not in _REQUEST_TYPES:
        raise InvalidRequest("request_type", f"{shown(kind)} is not supported, allowed is {_REQUEST_TYPES[0]!r}")
    parameters.pop("Streaming", None)


def _row(inputs: Inputs, index: int) -> _Row:
    one = Inputs({name: inputs.array(name)[index : index + 1] for name in inputs})
    retention.check_retention(one)
    return {
        **{name: one.array(name) for name in one if name not in _OWN},
        **_prompt(one),
        **_ending(one),
        **_top_p(one),
    }


def _prompt(one: Inputs) -> _Row:
    """The row's ids up to its length; the rest of a row is padding up to the longest prompt of the batch."""
    ids = one.array("input_ids").reshape(-1)
    length = one.integer("input_lengths")
    if not 1 <= length <= ids.size:
        raise InvalidRequest("input_lengths", f"{length} is out of range, allowed is [1, {ids.size}]")
    return {"input_ids": as_array(ids[:length], np.int32)}


def _ending(one: Inputs) -> _Row:
    """At this entry nothing but the client's ``end_id`` ends an answer before its length; -1 is none, too."""
    end_id = one.integer("end_id", -1)
    if end_id == -1:
        return {"ignore_eos": as_array([True], np.bool_)}
    return {"end_id": as_array([end_id], np.int32)}


def _top_p(one: Inputs) -> _Row:
    """0 and less mean that it is not set; NaN goes on, to be refused."""
    unset = one.real("runtime_top_p", 0.0) <= 0.0
    return {} if unset else {"runtime_top_p": one.array("runtime_top_p")}
