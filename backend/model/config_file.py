"""Typed reading of a JSON object, with errors that name file, key and value."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from backend.model.errors import ModelConfigError

T = TypeVar("T")


class _Required:
    """The type of ``REQUIRED``."""


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A JSON object and where it stands. A key whose value is null counts as absent.

    Every reader takes a default; without one, an absent key is a ``ModelConfigError``, as is a value of the wrong type
    or out of range.
    """

    where: str  # the file, as messages show it
    values: Mapping[str, Any]
    prefix: str = ""  # keys of the enclosing objects, each with its dot

    @classmethod
    def load(cls, path: Path) -> "ConfigFile":
        """Read a file.

        Raises:
            ModelConfigError: it is absent, not JSON, or not an object.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelConfigError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ModelConfigError(f"{path}: is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise ModelConfigError(f"{path}: expected a JSON object, found {type(values).__name__}")
        return cls(str(path), values)

    def error(self, key: str, expected: str) -> ModelConfigError:
        """The error that says what stands at ``key`` and what should."""
        found = repr(self.values[key]) if key in self.values else "absent"
        return ModelConfigError(f"{self.where}: {self.prefix}{key} = {found}: expected {expected}")

    def has(self, key: str) -> bool:
        """Whether ``key`` has a value."""
        return self.values.get(key) is not None

    def is_null(self, key: str) -> bool:
        """Whether the file gives ``key`` as null, which for some keys says more than leaving it out."""
        return key in self.values and self.values[key] is None

    def integer(self, key: str, default: int | _Required = REQUIRED, minimum: int = 1) -> int:
        """An integer of at least ``minimum``."""
        value = self._get(key, default, f"an integer >= {minimum}")
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.error(key, f"an integer >= {minimum}")
        return value

    def number(self, key: str, default: float | _Required = REQUIRED) -> float:
        """A number above zero."""
        value = self._get(key, default, "a number above 0")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self.error(key, "a number above 0")
        return float(value)

    def optional_number(self, key: str) -> float | None:
        """A number above zero, or None where the key is absent."""
        return self.number(key) if self.has(key) else None

    def flag(self, key: str, default: bool | _Required = REQUIRED) -> bool:
        """True or false."""
        value = self._get(key, default, "true or false")
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def text(self, key: str, default: str | _Required = REQUIRED) -> str:
        """A string."""
        value = self._get(key, default, "a string")
        if not isinstance(value, str):
            raise self.error(key, "a string")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """One integer or a list of them, none where the key is absent."""
        value = self._get(key, (), "")
        values = [value] if isinstance(value, int) else value
        if not isinstance(values, list | tuple) or not all(type(item) is int for item in values):
            raise self.error(key, "an integer or a list of integers")
        return tuple(values)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings, empty where the key is absent."""
        value = self._get(key, (), "")
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "a list of strings")
        return tuple(value)

    def section(self, key: str) -> "ConfigFile":
        """The object at ``key``; an empty one where the key is absent."""
        value = self._get(key, {}, "")
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return ConfigFile(self.where, value, f"{self.prefix}{key}.")

    def _get(self, key: str, default: Any, expected: str) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is REQUIRED:
            raise self.error(key, expected)
        return default
