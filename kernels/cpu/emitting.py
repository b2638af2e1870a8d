"""What writers of vector instructions share: constants, addresses, and what lies there."""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

LINE = 64  # bytes of a line of the cache, and of a vector of 16 words

_I64 = ir.IntType(64)


def number(value: int) -> Any:
    """A constant of 64 bits."""
    return ir.Constant(_I64, value)


def address(builder: Any, *terms: Any) -> Any:
    """The sum of addresses and distances, some of them given as (count, distance)."""
    total = number(0)
    for term in terms:
        total = builder.add(total, builder.mul(number(term[0]), term[1]) if isinstance(term, tuple) else term)
    return total


def load(builder: Any, place: Any, kind: Any) -> Any:
    """What lies at an address, aligned to 4 bytes."""
    return builder.load(builder.inttoptr(place, ir.PointerType(kind)), align=4)


def store(builder: Any, value: Any, place: Any) -> None:
    """Put a value at an address, aligned to 4 bytes."""
    builder.store(value, builder.inttoptr(place, ir.PointerType(value.type)), align=4)


def bring_near(builder: Any, place: Any) -> None:
    """Have the line of the cache at an address brought into the second level.

    What lies there need not be anybody's: to fetch is no access.
    """
    byte, word = ir.PointerType(ir.IntType(8)), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    to_read, into_second_level, data = (ir.Constant(word, value) for value in (0, 2, 1))
    builder.call(fetch, [builder.inttoptr(place, byte), to_read, into_second_level, data])
