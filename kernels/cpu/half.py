"""Float16 numbers in memory, float32 in registers: what a pool in half the bytes is written and read with."""

import platform
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.cpu.jit import inline
from kernels.cpu.tile import WIDTH, at_element

LARGEST = 65504.0  # finite float16; what lies beyond is written as this, as infinities would spoil what reads them

_I64, _F16, _F32 = ir.IntType(64), ir.HalfType(), ir.FloatType()


def supported() -> bool:
    """Whether this processor converts by itself; elsewhere LLVM would call a function that numba does not have."""
    if platform.machine() == "aarch64":
        return True
    return bool(binding.get_host_cpu_features().get("f16c", False))


def _kinds(width: int) -> tuple[Any, Any]:
    return (_F16, _F32) if width == 1 else (ir.VectorType(_F16, width), ir.VectorType(_F32, width))


def _widen(builder: Any, source: Any, target: Any, at: Any, width: int) -> None:
    half, single = _kinds(width)
    number = builder.load(at_element(builder, source, at, half, 2), align=2)
    builder.store(builder.fpext(number, single), at_element(builder, target, at, single, 4), align=4)


def _narrow(builder: Any, source: Any, target: Any, at: Any, width: int) -> None:
    half, single = _kinds(width)
    number = builder.load(at_element(builder, source, at, single, 4), align=4)
    for sign, beyond in ((1.0, ">"), (-1.0, "<")):  # ordered: a NaN stays one
        limit = ir.Constant(single, sign * LARGEST if width == 1 else [sign * LARGEST] * width)
        number = builder.select(builder.fcmp_ordered(beyond, number, limit), limit, number)
    builder.store(builder.fptrunc(number, half), at_element(builder, target, at, half, 2), align=2)


def _emit(builder: Any, arguments: list[Any], convert: Any) -> Any:
    """All of ``count`` numbers, as many at a time as a vector holds and the rest one by one."""
    source, count, target = arguments
    vectors = builder.udiv(count, ir.Constant(_I64, WIDTH))
    whole = builder.mul(vectors, ir.Constant(_I64, WIDTH))
    with cgutils.for_range(builder, vectors, intp=_I64) as loop:
        convert(builder, source, target, builder.mul(loop.index, ir.Constant(_I64, WIDTH)), WIDTH)
    with cgutils.for_range(builder, builder.sub(count, whole), intp=_I64) as loop:
        convert(builder, source, target, builder.add(whole, loop.index), 1)
    return ir.Constant(_I64, 0)


def _conversion(convert: Any) -> Any:
    def typed(_c: Any, _source: Any, _count: Any, _target: Any) -> Any:
        def generate(_target: Any, builder: Any, _signature: Any, arguments: list[Any]) -> Any:
            # Where it cannot be done no pool is narrow, and the code that would do it is never reached.
            return _emit(builder, arguments, convert) if supported() else ir.Constant(_I64, 0)

        return types.int64(types.int64, types.int64, types.int64), generate

    return intrinsic(typed)


_widened, _narrowed = _conversion(_widen), _conversion(_narrow)


@inline
def widen(source: int, count: int, target: int) -> None:
    """Float16 ``[count]`` at an address -> float32 at another; exact."""
    _widened(source, count, target)


@inline
def narrow(source: int, count: int, target: int) -> None:
    """Float32 ``[count]`` at an address -> the nearest float16 at another; beyond its range, the last within it."""
    _narrowed(source, count, target)
