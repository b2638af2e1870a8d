"""Exponentials that compile to vector instructions; the C library's would be called once per number.

The polynomial is a Taylor expansion around the middle of a range of width ln 2, after the range reduction of Cody and
Waite (Software Manual for the Elementary Functions, 1980, chapter 6). Relative error below 3e-7.
"""

import numpy as np

from kernels.cpu.jit import inline
from kernels.cpu.memory import float_of_bits

_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)  # exact in few bits, so that its multiples are exact too
_LN2_LOW = np.float32(-2.12194440e-4)
_LOWEST, _HIGHEST = np.float32(-87.0), np.float32(88.0)
_C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(1 / n) for n in (2, 6, 24, 120, 720, 5040))
_HALF, _ONE, _TWO, _ZERO = np.float32(0.5), np.float32(1), np.float32(2), np.float32(0)
_BIAS, _MANTISSA = np.int32(127), np.int32(23)


@inline
def exponential(x: np.float32) -> np.float32:
    """e**x of a float32; 0 below -87 (minus infinity included), e**88 above 88."""
    clamped = min(max(x, _LOWEST), _HIGHEST)
    whole = np.floor(clamped * _LOG2_E + _HALF)
    r = clamped - whole * _LN2_HIGH - whole * _LN2_LOW
    series = _C2 + r * (_C3 + r * (_C4 + r * (_C5 + r * (_C6 + r * _C7))))
    power = float_of_bits((np.int32(whole) + _BIAS) << _MANTISSA)
    value = (_ONE + r + r * r * series) * power
    return _ZERO if x < _LOWEST else value


@inline
def hyperbolic_tangent(x: np.float32) -> np.float32:
    """tanh(x) of a float32; absolute error below 3e-7."""
    return _ONE - _TWO / (exponential(_TWO * x) + _ONE)
