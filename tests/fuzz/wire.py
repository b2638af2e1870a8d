"""Tensors as they stand on the wire, right or wrong, and back."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

DTYPES: dict[str, Any] = {
    "BOOL": np.bool_, "UINT8": np.uint8, "INT32": np.int32, "UINT32": np.uint32, "INT64": np.int64,
    "UINT64": np.uint64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_,
}  # fmt: skip


class WireTensor(NamedTuple):
    """What is sent for one input; shape and content need not fit each other."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    content: bytes

    def __repr__(self) -> str:
        shown = self.content if len(self.content) <= 80 else self.content[:77] + b"..."
        return f"{self.name} {self.datatype}{list(self.shape)} {shown!r} ({len(self.content)} bytes)"


def packed(datatype: str, values: Sequence[Any] | NDArray[Any]) -> bytes:
    """Content of a tensor with these elements, flat; strings each with its length before it."""
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(each)) + each for each in values)
    return np.asarray(values, DTYPES[datatype]).tobytes()


def unpacked(tensor: WireTensor) -> NDArray[Any]:
    """The array that a model gets of a tensor that is whole."""
    if tensor.datatype != "BYTES":
        return np.frombuffer(tensor.content, DTYPES[tensor.datatype]).reshape(tensor.shape).copy()
    array = np.empty(int(np.prod(tensor.shape)), np.object_)
    for place, value in enumerate(strings_in(tensor.content)):
        array[place] = value
    return array.reshape(tensor.shape)


def strings_in(content: bytes) -> Iterable[bytes]:
    """The elements of a whole BYTES tensor."""
    at = 0
    while at < len(content):
        (size,) = struct.unpack_from("<I", content, at)
        yield content[at + 4 : at + 4 + size]
        at += 4 + size


def fits(tensor: WireTensor) -> bool:
    """Whether the content has just the elements that the shape says; the server refuses others by itself."""
    count = int(np.prod(tensor.shape, dtype=np.int64))
    if tensor.datatype == "BYTES":
        try:
            return len(list(strings_in(tensor.content))) == count
        except struct.error:
            return False
    return len(tensor.content) == count * np.dtype(DTYPES[tensor.datatype]).itemsize
