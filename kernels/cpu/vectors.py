"""What writers of arithmetic on vectors of 16 share: constants, the larger of two, and powers of two."""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from kernels.cpu.tile import WIDTH, fused_multiply_add

VECTOR, WHOLE = ir.VectorType(ir.FloatType(), WIDTH), ir.VectorType(ir.IntType(32), WIDTH)
ROUND = 1.5 * 2**23  # added to a small float32, leaves the nearest whole number in its last bits


def all_of(value: float) -> Any:
    """A number in all lanes."""
    return ir.Constant(VECTOR, [value] * WIDTH)


def whole_of(value: int) -> Any:
    """A whole number in all lanes."""
    return ir.Constant(WHOLE, [value] * WIDTH)


def larger(builder: Any, a: Any, b: Any) -> Any:
    """The larger of two, b where either is NaN: one instruction."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def series_by_power(builder: Any, series: Sequence[float], x: Any, shifted: Any) -> Any:
    """A series in x, its constant first and near 1, by 2 to the whole number that ``ROUND`` was added to in shifted."""
    fma = fused_multiply_add(builder.module)
    total = all_of(series[-1])
    for coefficient in reversed(series[:-1]):
        total = builder.call(fma, [total, x, all_of(coefficient)])
    exponent = builder.shl(builder.bitcast(shifted, WHOLE), whole_of(23))
    return builder.bitcast(builder.add(builder.bitcast(total, WHOLE), exponent), VECTOR)
