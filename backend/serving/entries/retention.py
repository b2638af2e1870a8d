"""Retention hints of TensorRT-LLM: for how long, and how dearly, blocks of the prompt and the answer are to be kept.

The prefix cache evicts what was used longest ago, whoever used it. So hints are checked, and taken only where they ask
for nothing else than that: the default priority, for all tokens alike.
"""

from __future__ import annotations

from backend.errors import InvalidRequest
from backend.serving.inputs import Inputs

DEFAULT_PRIORITY = 35
_MAX_PRIORITY = 100
_RANGE = "retention_token_range_"
_REQUIRED = ("starts", "ends", "priorities")
_DURATIONS = "durations_ms"
_DECODE = ("retention_decode_priority", "retention_decode_duration_ms")
NAMES = (*(_RANGE + name for name in (*_REQUIRED, _DURATIONS)), *_DECODE)


def check_retention(inputs: Inputs) -> None:
    """Raise InvalidRequest for hints that are ill-formed, and for those that would have to have an effect."""
    if not any(name in inputs for name in NAMES):
        return
    columns = {name: _column(inputs, _RANGE + name) for name in _REQUIRED}
    if _RANGE + _DURATIONS in inputs:
        columns[_DURATIONS] = _column(inputs, _RANGE + _DURATIONS)
    count = len(columns["starts"])
    for name, values in columns.items():
        if len(values) != count:
            raise InvalidRequest(_RANGE + name, f"{len(values)} elements, {_RANGE}starts has {count}")
    for start, end in zip(columns["starts"], columns["ends"], strict=True):
        if start < 0:
            raise InvalidRequest(_RANGE + "starts", f"{start} is out of range, allowed is 0 and more")
        if end != -1 and end <= start:
            raise InvalidRequest(_RANGE + "ends", f"{end} is out of range, allowed is more than {start}, or -1")
    for value in columns["priorities"]:
        _check_priority(_RANGE + "priorities", value)
    for value in columns.get(_DURATIONS, ()):
        _check_duration(_RANGE + _DURATIONS, value)
    if _DECODE[0] in inputs:
        _check_priority(_DECODE[0], inputs.integer(_DECODE[0]))
    if _DECODE[1] in inputs:
        _check_duration(_DECODE[1], inputs.integer(_DECODE[1]))


def _column(inputs: Inputs, name: str) -> tuple[int, ...]:
    if name not in inputs:
        raise InvalidRequest(name, "is required where any retention hint is given")
    return inputs.ids(name)


def _check_priority(name: str, value: int) -> None:
    if not 0 <= value <= _MAX_PRIORITY:
        raise InvalidRequest(name, f"{value} is out of range, allowed is [0, {_MAX_PRIORITY}]")
    if value != DEFAULT_PRIORITY:
        raise InvalidRequest(
            name, f"{value} is not supported, allowed is {DEFAULT_PRIORITY}: cached blocks go by their last use alone"
        )


def _check_duration(name: str, value: int) -> None:
    if value != -1 and value <= 0:
        raise InvalidRequest(name, f"{value} is out of range, allowed is 1 and more, or -1 for ever")
    if value != -1:
        raise InvalidRequest(name, f"{value} is not supported, allowed is -1: cached blocks go by their last use alone")
