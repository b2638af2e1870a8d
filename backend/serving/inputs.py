"""Reading a request's tensors: one place where types and counts are checked, with the field's name in every error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.errors import InvalidRequest

Tensors = Mapping[str, NDArray[Any]]
"""Tensors by name, batch dimension included where there is one."""


class Inputs:
    """Named tensors of one request, batch dimension included. Absent optional ones read as the given default."""

    def __init__(self, tensors: Mapping[str, NDArray[Any]], names: Mapping[str, str] | None = None) -> None:
        """names: tensor name -> the name to use in errors, where the client knows it by another."""
        self._tensors = tensors
        self._names = names or {}

    def __iter__(self) -> Iterator[str]:
        """The names of the tensors that were given."""
        return iter(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def shown(self, name: str) -> str:
        """The name by which the client knows the field."""
        return self._names.get(name, name)

    def _scalar(self, name: str) -> Any:
        values = self._tensors[name].reshape(-1)
        if values.size != 1:
            raise InvalidRequest(self.shown(name), f"{values.size} elements, exactly 1 is expected")
        return values[0]

    def array(self, name: str) -> NDArray[Any]:
        """A tensor that was given, as it came."""
        return self._tensors[name]

    def either(self, name: str, alias: str) -> str:
        """Which of two names of one field was given; ``name`` if neither. Raises InvalidRequest if both were."""
        if alias not in self._tensors:
            return name
        if name in self._tensors:
            raise InvalidRequest(self.shown(alias), f"is another name of {self.shown(name)}, only one may be given")
        return alias

    def integer(self, name: str, default: int | None = None) -> int:
        """One integer. Raises InvalidRequest if it is absent without a default."""
        if name not in self._tensors:
            return self._default(name, default)
        return int(self._scalar(name))

    def real(self, name: str, default: float) -> float:
        """One floating-point number; NaN and infinities pass, and are caught by the range checks."""
        return float(self._scalar(name)) if name in self._tensors else default

    def boolean(self, name: str, default: bool) -> bool:
        """One truth value."""
        return bool(self._scalar(name)) if name in self._tensors else default

    def ids(self, name: str) -> tuple[int, ...]:
        """Token ids of one prompt: shape [n] or [1, n]."""
        if name not in self._tensors:
            self._default(name, None)
        values = self._tensors[name]
        if values.ndim > 1 and values.shape[0] != 1:
            raise InvalidRequest(self.shown(name), f"a batch of {values.shape[0]}, one prompt per request is supported")
        return tuple(values.reshape(-1).tolist())

    def rows(self, name: str) -> list[list[int]]:
        """Token ids of several texts: shape [1, rows, n]."""
        values = self._tensors[name]
        if values.ndim != 3 or values.shape[0] != 1:
            raise InvalidRequest(self.shown(name), f"shape {list(values.shape)}, expected is [1, rows, n]")
        rows: list[list[int]] = values[0].tolist()
        return rows

    def strings(self, name: str) -> list[str]:
        """All strings of a BYTES tensor, in order; [] when absent."""
        if name not in self._tensors:
            return []
        return [self._decode(name, value) for value in self._tensors[name].reshape(-1)]

    def string(self, name: str) -> str:
        """Exactly one string."""
        if name not in self._tensors:
            self._default(name, None)
        return self._decode(name, self._scalar(name))

    def _decode(self, name: str, value: bytes | str) -> str:
        if isinstance(value, str):
            return value
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(self.shown(name), f"not valid UTF-8 at byte {error.start}") from error

    def _default(self, name: str, default: int | None) -> int:
        if default is None:
            raise InvalidRequest(self.shown(name), "is required")
        return default


def word_list(words: list[str]) -> list[str]:
    """Stop words as clients write them: a list, or one string; ``""`` means none."""
    return [word for word in words if word]


def as_array(values: object, dtype: type[np.generic]) -> NDArray[Any]:
    """A numpy array with a leading batch dimension of 1."""
    return np.asarray(values, dtype=dtype)[None]
