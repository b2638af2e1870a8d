"""What is wrong with a request's body, in one line that names the field; never with what was sent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from backend.gateway.fields import REFUSED
from backend.gateway.problems import ApiError, refused

_MAX_NAME = 64
_TAG = re.compile(r"str|TextPart|list\[.*|constrained-.*|function-.*")
_NO_OBJECT = "the body must be a JSON object, sent with content-type: application/json"


def explain(errors: Sequence[Any]) -> ApiError:
    """The first of pydantic's errors; of the alternatives of one field, the one that came furthest."""
    error = max((e for e in errors if e["loc"][:2] == errors[0]["loc"][:2]), key=_progress)
    kind, place = error["type"], error["loc"][1:]
    if kind == "json_invalid":
        return ApiError(400, "the body is no valid JSON")
    if not place:
        return ApiError(400, _NO_OBJECT)
    field = _written(place)
    if kind == "extra_forbidden":
        name = str(place[-1])
        return refused(field, REFUSED.get(name, "no such field") if len(place) == 1 else "no such field")
    return refused(field, _sentence(error["msg"]), "missing_required_parameter" if kind == "missing" else None)


def _progress(error: Any) -> tuple[int, bool]:
    """How far into the value its check came; a value of another type came least far."""
    return len(error["loc"]), not error["type"].endswith("_type")


def _written(place: Sequence[str | int]) -> str:
    """As in messages[0].content; names that pydantic gives to alternatives are left out."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not text:
            text = part[:_MAX_NAME]
        elif not _TAG.fullmatch(part):
            text += f".{part[:_MAX_NAME]}"
    return text


def _sentence(message: str) -> str:
    return message[:1].lower() + message[1:]
