"""What writers of vector instructions share: constants, addresses, and what lies there."""

from collections.abc import Callable
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


class Abreast:
    """A builder whose values are tuples of a few, one for each of as many chains of instructions.

    It writes each instruction for all chains before the next, so that a processor, which looks some 60 of them ahead,
    always finds one that waits for no other. What is no tuple is the same for all.
    """

    def __init__(self, builder: Any, chains: int) -> None:
        self._builder, self._chains = builder, chains
        self.module = builder.module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The builder's method, for all chains."""
        method = getattr(self._builder, name)

        def of_chain(argument: Any, chain: int) -> Any:
            if isinstance(argument, list):
                return [of_chain(one, chain) for one in argument]
            return argument[chain] if isinstance(argument, tuple) else argument

        def each(*arguments: Any, **options: Any) -> tuple[Any, ...]:
            return tuple(method(*[of_chain(one, n) for one in arguments], **options) for n in range(self._chains))

        return each


def bring_near(builder: Any, place: Any) -> None:
    """Have the line of the cache at an address brought into the second level.

    What lies there need not be anybody's: to fetch is no access.
    """
    byte, word = ir.PointerType(ir.IntType(8)), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    to_read, into_second_level, data = (ir.Constant(word, value) for value in (0, 2, 1))
    builder.call(fetch, [builder.inttoptr(place, byte), to_read, into_second_level, data])
