"""Values of JSON that some clients write as strings: "5", "0.7", "true". One reading per type; errors name the key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sized

from backend.errors import InvalidRequest, shown

MAX_LIST = 4096
MAX_DEPTH = 100
"""Of lists and objects in each other: far from where Python can no longer walk through them."""


def parsed(key: str, text: str) -> object:
    """The value of a JSON text. Raises InvalidRequest."""
    try:
        value: object = json.loads(text)
    except RecursionError as error:
        raise _too_deep(key) from error
    except ValueError as error:
        raise InvalidRequest(key, "is not valid JSON") from error
    _check_depth(key, value)
    return value


def _check_depth(key: str, value: object) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise _too_deep(key)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep(key: str) -> InvalidRequest:
    return InvalidRequest(key, f"is nested too deeply, at most {MAX_DEPTH} levels are allowed")


def as_int(key: str, value: object) -> int:
    """An integer, as a number without a fraction or as a string."""
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError as error:
            raise InvalidRequest(key, f"{shown(value)} is not an integer") from error
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(key, f"{shown(value)} is not an integer")
    return value


def as_float(key: str, value: object) -> float:
    """A number; NaN and infinities pass, and are caught by the range checks."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidRequest(key, f"{shown(value)} is not a number")
    try:
        return float(value)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(key, f"{shown(value)} is not a number") from error


def as_bool(key: str, value: object) -> bool:
    """A truth value, as such, or as the string "true" or "false" in any case."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise InvalidRequest(key, f"{shown(value)} is neither true nor false")


def as_strings(key: str, value: object) -> list[str]:
    """One string, or a list of them; "" is none."""
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(each, str) for each in strings):
        raise InvalidRequest(key, f"{shown(value)} is neither a string nor a list of strings")
    _check_length(key, strings)
    return [each for each in strings if each]


def as_ints(key: str, value: object) -> list[int]:
    """A list of integers."""
    if not isinstance(value, list):
        raise InvalidRequest(key, f"{shown(value)} is not a list of integers")
    _check_length(key, value)
    return [as_int(key, each) for each in value]


def as_weights(key: str, value: object) -> dict[int, float]:
    """An object of token id -> number."""
    if not isinstance(value, dict):
        raise InvalidRequest(key, f"{shown(value)} is not an object of token ids and numbers")
    _check_length(key, value)
    return {as_int(key, token): as_float(key, weight) for token, weight in value.items()}


def within(key: str, value: int, low: int, high: int) -> int:
    """The value, if it is in [low, high]: what the engine's tensors can hold. Raises InvalidRequest."""
    if not low <= value <= high:
        raise InvalidRequest(key, f"{value} is out of range, allowed is [{low}, {high}]")
    return value


def _check_length(key: str, values: Sized) -> None:
    if len(values) > MAX_LIST:
        raise InvalidRequest(key, f"{len(values)} elements, at most {MAX_LIST} are allowed")
