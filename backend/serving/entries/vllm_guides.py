"""vLLM's ``structured_outputs`` -> the engine's inputs of guided decoding."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from backend.errors import InvalidRequest
from backend.serving.entries.json_values import as_bool, as_strings, parsed
from backend.serving.guided_inputs import GUIDE, TYPE

KEYS = ("structured_outputs", "guided_decoding")
"""The name, and the older one."""

_Read = Callable[[str, object], tuple[str, str]]


def guide_inputs(key: str, value: object) -> dict[str, object]:
    """Of an object, or of one written as a string; "" and "null" are none. Raises InvalidRequest.

    Served are ``json``, ``json_object``, ``regex``, ``choice`` and ``grammar``, one of them at a time.
    """
    wishes = _object(key, value)
    given = {name: wish for name, wish in wishes.items() if wish is not None and wish is not False}
    for name in given:
        if name not in _READERS:
            raise InvalidRequest(f"{key}.{name}", f"is not supported, allowed are {', '.join(_READERS)}")
    if len(given) > 1:
        raise InvalidRequest(key, f"{' and '.join(given)} are given, only one may be")
    for name, wish in given.items():
        kind, guide = _READERS[name](f"{key}.{name}", wish)
        inputs: dict[str, object] = {TYPE: kind.encode()}
        return inputs | ({GUIDE: _utf8(f"{key}.{name}", guide)} if guide else {})
    return {}


def _object(key: str, value: object) -> dict[str, object]:
    if isinstance(value, str):
        value = parsed(key, value) if value else None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequest(key, "is not a JSON object")
    return value


def _schema(key: str, value: object) -> tuple[str, str]:
    if not isinstance(value, str | dict) or not value:
        raise InvalidRequest(key, "is neither a JSON schema nor a string that holds one")
    return "json_schema", value if isinstance(value, str) else json.dumps(value)


def _json_object(key: str, value: object) -> tuple[str, str]:
    as_bool(key, value)
    return "json", ""


def _choice(key: str, value: object) -> tuple[str, str]:
    choices = as_strings(key, value)
    if isinstance(value, str) or not choices:
        raise InvalidRequest(key, "is not a list of strings with at least one that is not empty")
    return "regex", "|".join(re.escape(choice) for choice in choices)


def _text_as(kind: str) -> _Read:
    def read(key: str, value: object) -> tuple[str, str]:
        if not isinstance(value, str) or not value:
            raise InvalidRequest(key, "is not a string, or is empty")
        return kind, value

    return read


def _utf8(key: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(key, f"not valid Unicode at character {error.start}") from error


_READERS: Mapping[str, _Read] = {
    "json": _schema,
    "json_object": _json_object,
    "regex": _text_as("regex"),
    "choice": _choice,
    "grammar": _text_as("ebnf_grammar"),
}
