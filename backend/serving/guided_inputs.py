"""The inputs of guided decoding -> GuideText: valid in form, not compiled yet."""

from __future__ import annotations

from typing import NamedTuple

from backend.errors import InvalidRequest, shown
from backend.serving.inputs import Inputs
from backend.text.guided_decoding import GUIDE_TYPES

TYPE, GUIDE = "guided_decoding_guide_type", "guided_decoding_guide"
MAX_GUIDE_BYTES = 1 << 16
MAX_EBNF_BYTES = 1 << 13
"""Of grammars, whose notation is read by Python code."""


class GuideText(NamedTuple):
    """kind: one of GUIDE_TYPES. text: "" for ``json``."""

    kind: str
    text: str


def guide_of(inputs: Inputs, refusal: str) -> GuideText | None:
    """What the client wants its answer to conform to; "" for both inputs is nothing. Raises InvalidRequest.

    refusal: why nothing can be guided here; "" if it can.
    """
    kind = inputs.string(TYPE) if TYPE in inputs else ""
    text = inputs.string(GUIDE) if GUIDE in inputs else ""
    if not kind and not text:
        return None
    if refusal:
        raise InvalidRequest(inputs.shown(TYPE if kind else GUIDE), f"is not supported: {refusal}")
    _check_type(inputs, kind)
    if bool(text) == (kind == "json"):
        problem = "is not taken with" if text else "is required with"
        raise InvalidRequest(inputs.shown(GUIDE), f"{problem} {inputs.shown(TYPE)} {kind}")
    limit, size = MAX_EBNF_BYTES if kind == "ebnf_grammar" else MAX_GUIDE_BYTES, len(text.encode())
    if size > limit:
        raise InvalidRequest(inputs.shown(GUIDE), f"{size} bytes, at most {limit} are allowed with {kind}")
    return GuideText(kind, text)


def _check_type(inputs: Inputs, kind: str) -> None:
    allowed = ", ".join(GUIDE_TYPES)
    if not kind:
        raise InvalidRequest(inputs.shown(TYPE), f"is required with {inputs.shown(GUIDE)}, allowed is {allowed}")
    if kind not in GUIDE_TYPES:
        raise InvalidRequest(inputs.shown(TYPE), f"{shown(kind)} is not supported, allowed is {allowed}")
