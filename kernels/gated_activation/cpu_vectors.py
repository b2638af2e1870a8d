"""Gated activations on vectors of 16: a loop over so many that a compiler would take in pieces of 8.

Both are ``gate / (1 + e**-z) * up``: silu with ``z = gate``; gelu, approximated by a hyperbolic tangent, with twice
that one's argument, as ``(1 + tanh(y)) / 2 = 1 / (1 + e**-2y)``.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from kernels.cpu.emitting import LINE, load, number, store
from kernels.cpu.outline import outlined_intrinsic
from kernels.cpu.tile import fused_multiply_add
from kernels.cpu.vectors import ROUND, VECTOR, all_of, larger, series_by_power

ROOT, CUBIC = math.sqrt(2 / math.pi), 0.044715
_I64 = ir.IntType(64)
_LOWEST, _HIGHEST = -87.0, 88.0  # between which e**x is a normal float32
_LN2_HIGH = 0.693359375  # exact in few bits, so that its multiples are exact too
_LN2_LOW = float(np.float32(-2.12194440e-4))
_SERIES = [1 / math.factorial(n) for n in range(8)]  # Taylor's: relative error below 3e-7 for |x| <= ln(2) / 2


def _exponential(builder: Any, x: Any) -> Any:
    """e**x of x between e's lowest and highest, beyond as at those; as ``kernels.cpu.exponential`` computes it."""
    fma = fused_multiply_add(builder.module)
    x = larger(builder, x, all_of(_LOWEST))
    x = builder.select(builder.fcmp_ordered("<", x, all_of(_HIGHEST)), x, all_of(_HIGHEST))
    shifted = builder.call(fma, [x, all_of(1 / math.log(2)), all_of(ROUND)])
    whole = builder.fsub(shifted, all_of(ROUND))
    rest = builder.call(fma, [whole, all_of(-_LN2_HIGH), x])
    rest = builder.call(fma, [whole, all_of(-_LN2_LOW), rest])
    return series_by_power(builder, _SERIES, rest, shifted)


def _inner(builder: Any, x: Any) -> Any:
    """Gelu's z: twice the hyperbolic tangent's argument."""
    fma = fused_multiply_add(builder.module)
    cube = builder.fmul(builder.fmul(x, x), x)
    return builder.fmul(builder.call(fma, [cube, all_of(CUBIC), x]), all_of(2 * ROOT))


def _emit(builder: Any, with_tanh: bool, arguments: list[Any]) -> None:
    gate_at, up_at, vectors, out = arguments
    with cgutils.for_range(builder, vectors, intp=_I64) as loop:
        distance = builder.mul(loop.index, number(LINE))
        gate, up = (load(builder, builder.add(base, distance), VECTOR) for base in (gate_at, up_at))
        z = _inner(builder, gate) if with_tanh else gate
        below = builder.fadd(_exponential(builder, builder.fsub(all_of(-0.0), z)), all_of(1.0))
        store(builder, builder.fmul(builder.fdiv(gate, below), up), builder.add(out, distance))


# (gate, up, number of vectors, out): addresses of float32.
silu_vectors = outlined_intrinsic("silu_vectors", 4, lambda b, v: _emit(b, False, v))
gelu_tanh_vectors = outlined_intrinsic("gelu_tanh_vectors", 4, lambda b, v: _emit(b, True, v))
