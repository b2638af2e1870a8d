"""A GGUF file: its metadata and its tensors, read without copying the weights.

The `gguf` package has a reader too, but it walks string arrays one numpy view at a time: 22 seconds for Gemma 3's
262,144 tokens, against about one here. Block layouts and dequantization stay with that package.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little endian).
"""

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from backend.checkpoint.errors import CheckpointError, UnsupportedModel
from backend.errors import one_line

STRING, ARRAY = 8, 9
INTEGERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 10: "<u8", 11: "<i8"}
SCALARS = INTEGERS | {6: "<f4", 7: "?", 12: "<f8"}
PLAIN = {GGMLQuantizationType.F32: "<f4", GGMLQuantizationType.F16: "<f2", GGMLQuantizationType.F64: "<f8"}

_DAMAGED = (OSError, struct.error, LookupError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError)
"""What bytes that mean nothing bring about: lengths beyond the file, values of another type, arrays without end."""


class Tensor(NamedTuple):
    """One tensor as the file stores it."""

    name: str
    shape: tuple[int, ...]
    """Row-major, as torch and numpy say it; the file itself lists the dimensions in reverse."""
    kind: GGMLQuantizationType
    data: npt.NDArray[Any]
    """Values, or for a quantized kind the uint8 blocks [..., bytes per row]."""

    def dequantized(self) -> npt.NDArray[np.float32]:
        """The values, float32, of `shape`. Raises UnsupportedModel where `gguf` cannot decode the kind."""
        try:
            values = dequantize(self.data, self.kind)
        except NotImplementedError as error:
            raise UnsupportedModel(f"tensor {self.name}: quantization {self.kind.name} cannot be read") from error
        return np.ascontiguousarray(values, dtype="<f4").reshape(self.shape)


class GgufFile:
    """Metadata (`meta`: key -> Python value) and tensors (`tensors`: name -> Tensor) of one file.

    Raises CheckpointError for what is not a whole GGUF file of version 2 or 3, UnsupportedModel for one piece of a
    split file and for tensor kinds that the `gguf` package does not know.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._at = 0
            self._read()
        except CheckpointError:
            raise
        except _DAMAGED as error:
            raise CheckpointError(f"{path} is not a whole GGUF file ({one_line(str(error))})") from error

    def _read(self) -> None:
        if self._bytes[:4] != b"GGUF":
            raise CheckpointError(f"{self.path} is not a GGUF file")
        self._at = 4
        version, tensors, keys = self._unpack("<IQQ")
        if version not in (2, 3):
            raise CheckpointError(f"{self.path}: GGUF version {version}; versions 2 and 3 (little endian) are read")
        self.meta: dict[str, Any] = {self._string(): self._value(self._unpack("<I")[0]) for _ in range(keys)}
        if self.meta.get("split.count", 1) > 1:
            raise UnsupportedModel(f"{self.path} is one piece of a split GGUF; join the pieces first")
        headers = [self._tensor_header() for _ in range(tensors)]
        alignment = self.meta.get("general.alignment", 32)
        start = -(-self._at // alignment) * alignment
        self.tensors = {name: self._tensor(name, dims, kind, start + at) for name, dims, kind, at in headers}

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self._bytes, self._at)
        self._at += struct.calcsize(layout)
        return values

    def _string(self) -> str:
        (length,) = self._unpack("<Q")
        self._at += length
        if self._at > len(self._bytes):
            raise CheckpointError(f"{self.path} is cut short in its metadata")
        return self._bytes[self._at - length : self._at].decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            return self._array()
        return _python(np.frombuffer(self._bytes, SCALARS[kind], 1, self._scalar_at(SCALARS[kind], 1)))[0]

    def _array(self) -> list[Any]:
        kind, count = self._unpack("<IQ")
        if kind in (STRING, ARRAY):
            return [self._value(kind) for _ in range(count)]
        return _python(np.frombuffer(self._bytes, SCALARS[kind], count, self._scalar_at(SCALARS[kind], count)))

    def _scalar_at(self, dtype: str, count: int) -> int:
        """Where the next `count` scalars begin; moves past them."""
        start = self._at
        self._at += np.dtype(dtype).itemsize * count
        return start

    def _tensor_header(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        (rank,) = self._unpack("<I")
        dims = self._unpack(f"<{rank}Q")
        kind, offset = self._unpack("<IQ")
        return name, dims[::-1], kind, offset

    def _tensor(self, name: str, shape: tuple[int, ...], kind_id: int, start: int) -> Tensor:
        try:
            kind = GGMLQuantizationType(kind_id)
        except ValueError as error:
            raise UnsupportedModel(f"{self.path}: tensor {name} has the unknown kind {kind_id}") from error
        block, size = GGML_QUANT_SIZES[kind]
        stored, dtype = (shape, PLAIN[kind]) if kind in PLAIN else ((*shape[:-1], shape[-1] // block * size), "u1")
        count = math.prod(stored)
        if start + count * np.dtype(dtype).itemsize > len(self._bytes):
            raise CheckpointError(f"{self.path} is cut short: tensor {name} ends beyond the file")
        return Tensor(name, shape, kind, np.frombuffer(self._bytes, dtype, count, start).reshape(stored))


def _python(values: npt.NDArray[Any]) -> list[Any]:
    """Python numbers; a float32 as the shortest decimal that names it, so that 1e-05 stays 1e-05."""
    if values.dtype == np.float32:
        return [float(str(value)) for value in values]
    return values.tolist()  # type: ignore[no-any-return]
