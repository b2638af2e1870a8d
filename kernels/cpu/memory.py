"""What numba lacks and kernels need: arrays at an address, bit patterns of floats, and atomic words.

All are intrinsics that write LLVM instructions. Addresses are int64.
"""

import platform
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.cpu.emitting import bring_near
from kernels.cpu.jit import inline

_pointer: Any = getattr(types, "CPointer")  # noqa: B009 - which numba's stubs leave out
_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_YIELD_HINT = ir.Constant(_I32, 1)  # of Arm's hint instruction
_PAUSE: dict[str, tuple[str, list[Any]]] = {
    "x86_64": ("llvm.x86.sse2.pause", []),
    "aarch64": ("llvm.aarch64.hint", [_YIELD_HINT]),
}


def _instruction(result: Any, arguments: list[Any], emit: Callable[[Any, list[Any]], Any]) -> Any:
    """An intrinsic of fixed types whose code ``emit(builder, values)`` writes."""

    def generate(_context: Any, builder: Any, _signature: Any, values: list[Any]) -> Any:
        return emit(builder, values)

    def typed(parameters: str) -> Any:
        # numba reads the number of parameters from the signature, so each count needs a function of its own.
        names: dict[str, Any] = {"result": result(*arguments), "generate": generate}
        return eval(f"lambda typingctx{parameters}: (result, generate)", names)

    return intrinsic(typed("".join(f", a{i}" for i in range(len(arguments)))))


def _word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.PointerType(_I64))


def _store(builder: Any, values: list[Any]) -> Any:
    builder.store_atomic(values[1], _word(builder, values[0]), ordering="seq_cst", align=8)
    return values[1]


def _relax(builder: Any, _values: list[Any]) -> Any:
    name, arguments = _PAUSE.get(platform.machine(), ("", []))
    if name:
        kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
    return ir.Constant(_I64, 0)


def _invoke(builder: Any, values: list[Any]) -> Any:
    code, *arguments = values
    kind = ir.FunctionType(ir.VoidType(), [_I64, _I64, _I64])
    builder.call(builder.inttoptr(code, ir.PointerType(kind)), arguments)
    return ir.Constant(_I64, 0)


def _prefetch(builder: Any, values: list[Any]) -> Any:
    bring_near(builder, values[0])
    return ir.Constant(_I64, 0)


_floats_at = _instruction(_pointer(types.float32), [types.int64], lambda b, v: b.inttoptr(v[0], ir.PointerType(_F32)))
_ints_at = _instruction(_pointer(types.int32), [types.int64], lambda b, v: b.inttoptr(v[0], ir.PointerType(_I32)))
_shorts_at = _instruction(
    _pointer(types.int16), [types.int64], lambda b, v: b.inttoptr(v[0], ir.PointerType(ir.IntType(16)))
)
_longs_at = _instruction(_pointer(types.int64), [types.int64], lambda b, v: _word(b, v[0]))

float_of_bits = _instruction(types.float32, [types.int32], lambda b, v: b.bitcast(v[0], _F32))
double_of_bits = _instruction(types.float64, [types.int64], lambda b, v: b.bitcast(v[0], ir.DoubleType()))
load = _instruction(types.int64, [types.int64], lambda b, v: b.load_atomic(_word(b, v[0]), ordering="seq_cst", align=8))
store = _instruction(types.int64, [types.int64, types.int64], _store)
fetch_add = _instruction(
    types.int64, [types.int64, types.int64], lambda b, v: b.atomic_rmw("add", _word(b, v[0]), v[1], "seq_cst")
)
exchange = _instruction(
    types.int64, [types.int64, types.int64], lambda b, v: b.atomic_rmw("xchg", _word(b, v[0]), v[1], "seq_cst")
)
relax = _instruction(types.int64, [], _relax)
prefetch = _instruction(types.int64, [types.int64], _prefetch)
invoke = _instruction(types.int64, [types.int64] * 4, _invoke)


@inline
def floats(address: int, count: int) -> Any:
    """Float32 array ``[count]`` that lies at an address."""
    return numba.carray(_floats_at(address), (count,))


@inline
def ints(address: int, count: int) -> Any:
    """Int32 array ``[count]`` that lies at an address."""
    return numba.carray(_ints_at(address), (count,))


@inline
def shorts(address: int, count: int) -> Any:
    """Int16 array ``[count]`` that lies at an address."""
    return numba.carray(_shorts_at(address), (count,))


@inline
def longs(address: int, count: int) -> Any:
    """Int64 array ``[count]`` that lies at an address."""
    return numba.carray(_longs_at(address), (count,))


# Loops over addresses rather than slices of arrays: numba writes pages of code for one slice.
@inline
def fill(address: int, count: int, value: Any) -> None:
    """Set float32 numbers at an address."""
    target = floats(address, count)
    for i in range(count):
        target[i] = value


@inline
def copy(source: int, count: int, target: int) -> None:
    """Copy float32 numbers between places that do not overlap."""
    x, y = floats(source, count), floats(target, count)
    for i in range(count):
        y[i] = x[i]
