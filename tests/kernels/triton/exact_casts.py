"""Corrections of Triton 3.9's interpreter, which is what the tests here compare with, not what they test.

It narrows float32 to bfloat16 by cutting bits off, loses the carry into the exponent when it rounds to float8, and
takes bfloat16 for the whole number that its bits spell, when it multiplies matrices and when it converts whole
numbers. GPUs do none of that.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

_TORCH = {
    tl.float32: torch.float32,
    tl.float16: torch.float16,
    tl.bfloat16: torch.bfloat16,
    tl.float8e4nv: torch.float8_e4m3fn,
}
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def correct() -> None:
    """Correct the interpreter of this process."""
    InterpreterBuilder.cast_impl = _exact(InterpreterBuilder.cast_impl)
    InterpreterBuilder.create_fp_to_fp = _exact(InterpreterBuilder.create_fp_to_fp)
    dot = InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, _widened(a), _widened(b), *rest)

    InterpreterBuilder.create_dot = create_dot


def _exact(original: Callable[..., Any]) -> Callable[..., Any]:
    def cast(self: Any, source: Any, target: Any, *rest: Any) -> Any:
        kinds = source.dtype.scalar, target.scalar
        if kinds[0].is_int() and kinds[1] == tl.bfloat16:
            return TensorHandle(_converted(source.data.astype(np.float32), tl.float32, tl.bfloat16), tl.bfloat16)
        if kinds[0] in _TORCH and kinds[1] in _TORCH:
            return TensorHandle(_converted(source.data, *kinds), kinds[1])
        return original(self, source, target, *rest)

    return cast


def _widened(handle: Any) -> Any:
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return TensorHandle(_converted(handle.data, tl.bfloat16, tl.float32), tl.float32)


def _converted(data: np.ndarray, source: Any, target: Any) -> np.ndarray:
    bits = torch.from_numpy(np.ascontiguousarray(data).view(f"i{data.itemsize}" if data.itemsize > 1 else "u1"))
    result = bits.view(_TORCH[source]).to(_TORCH[target])
    kind = {tl.float32: "f4", tl.float16: "f2", tl.bfloat16: "u2", tl.float8e4nv: "u1"}[target]
    return result.view(_BITS[result.element_size()]).numpy().view(kind).reshape(data.shape)
