"""Inputs that clients of other servers send by habit and that mean nothing here: taken with values that change nothing.

Any other value would be ignored, which nobody would notice; so it is refused.
"""

from __future__ import annotations

from typing import NamedTuple

from backend.errors import InvalidRequest
from backend.serving.inputs import Inputs


class _Neutral(NamedTuple):
    """values: those that change nothing. why: what is not there."""

    values: tuple[float, ...]
    why: str


_NO_BEAMS = "it has an effect with a beam_width above 1 only"
_NO_DECAY = "top_p stays as it is from token to token"
_WITHOUT_BEAMS = {
    "len_penalty": _Neutral((0, 1), _NO_BEAMS),
    "early_stopping": _Neutral((1,), _NO_BEAMS),
    "beam_search_diversity_rate": _Neutral((0,), _NO_BEAMS),
}
_NEUTRAL = {
    "runtime_top_p_min": _Neutral((0,), _NO_DECAY),
    "runtime_top_p_decay": _Neutral((1,), _NO_DECAY),
    "runtime_top_p_reset_ids": _Neutral((-1,), _NO_DECAY),
}


def refuse_what_has_no_effect(inputs: Inputs, searches: bool = False) -> None:
    """Raise InvalidRequest for the first of these inputs whose value would change something elsewhere.

    searches: over beams.
    """
    for name, neutral in (_NEUTRAL if searches else _WITHOUT_BEAMS | _NEUTRAL).items():
        if name not in inputs:
            continue
        is_flag = inputs.array(name).dtype.kind == "b"
        value = float(inputs.boolean(name, False)) if is_flag else inputs.real(name, 0.0)
        if value not in neutral.values:
            allowed = " or ".join(_shown(each, is_flag) for each in neutral.values)
            raise InvalidRequest(
                inputs.shown(name), f"{_shown(value, is_flag)} is not supported, allowed is {allowed}: {neutral.why}"
            )


def _shown(value: float, is_flag: bool) -> str:
    return str(bool(value)).lower() if is_flag else f"{value:g}"
