"""The inputs of a search over beams -> BeamParams; what makes no sense beside one is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from backend.beam_params import BeamParams
from backend.errors import InvalidRequest, shown
from backend.serving.guided_inputs import GUIDE, TYPE
from backend.serving.inputs import Inputs

WIDTH, EARLY = "beam_width", "early_stopping"
_RANKED = "beams are ranked, not drawn"
_LATE = "which beams are the best is known when the search has ended"
_ALONE: Mapping[str, tuple[tuple[float, ...], str]] = {
    "temperature": ((0.0, 1.0), _RANKED),
    "runtime_top_k": ((0.0, 1.0), _RANKED),
    "runtime_top_p": ((0.0, 1.0), _RANKED),
    "min_p": ((0.0,), _RANKED),
    "streaming": ((0.0,), _LATE),
    "return_generation_logits": ((0.0,), "the logits of beams are not kept"),
    "num_log_probs": ((0.0,), "the alternatives of beams are not kept"),
}
"""Input -> the values that it may have beside a search, and why no other."""

_NO_GUIDES = "the search does not follow a guide"


class BeamLimits(NamedTuple):
    """most: the widest search. refusal: why there is none here, "" if there is."""

    most: int
    refusal: str = ""


NO_BEAMS = BeamLimits(1)


def beams_of(inputs: Inputs, custom: Mapping[str, object], limits: BeamLimits) -> BeamParams | None:
    """None with a ``beam_width`` of 1. Raises InvalidRequest. custom: the request's parameters."""
    width = inputs.integer(WIDTH, 1)
    if not 1 <= width <= limits.most:
        raise InvalidRequest(WIDTH, f"{width} is out of range, allowed is [1, {limits.most}] (max_beam_width)")
    early = _early_stopping(inputs, custom)
    if width == 1:
        if EARLY in custom and early != 1:
            raise InvalidRequest(EARLY, f"{early} is not supported, allowed is 1: {WIDTH} is 1")
        return None
    if limits.refusal:
        raise InvalidRequest(WIDTH, f"{width} is not supported, allowed is 1: {limits.refusal}")
    _refuse_beside(inputs, width)
    return BeamParams(
        width=width,
        num_returned=inputs.integer("num_return_sequences", width),
        length_penalty=inputs.real("len_penalty", 0.0),
        early_stopping=early,
        diversity_rate=inputs.real("beam_search_diversity_rate", 0.0),
    )


def _early_stopping(inputs: Inputs, custom: Mapping[str, object]) -> int:
    """The tensor is a truth value, as TensorRT-LLM declares it; further values come as a custom parameter."""
    given = custom.get(EARLY, "")
    if given in ("", None):
        return int(inputs.boolean(EARLY, True))
    if EARLY in inputs:
        raise InvalidRequest(EARLY, "is given as an input and as a parameter, only one may be")
    text = str(given).strip()
    if isinstance(given, bool) or not text.isdecimal() or len(text) > 9:
        raise InvalidRequest(EARLY, f"{shown(given)} is not an integer in [0, 999999999]")
    return int(text)


def _refuse_beside(inputs: Inputs, width: int) -> None:
    beside = f"with {WIDTH} {width}"
    for name, (values, why) in _ALONE.items():
        if name not in inputs:
            continue
        is_flag = inputs.array(name).dtype.kind == "b"
        value = float(inputs.boolean(name, False)) if is_flag else inputs.real(name, 0.0)
        if value not in values:
            shown = str(bool(value)).lower() if is_flag else f"{value:g}"
            allowed = "false" if is_flag else " or ".join(f"{each:g}" for each in values)
            raise InvalidRequest(inputs.shown(name), f"{shown} is not supported {beside}, allowed is {allowed}: {why}")
    for name in (TYPE, GUIDE):
        if name in inputs and inputs.string(name):
            raise InvalidRequest(inputs.shown(name), f"is not supported {beside}: {_NO_GUIDES}")
