"""Code that compiled functions share: a function of its own in the module, made once.

Inlined at each use, the tiles took minutes to compile.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic

_I64 = ir.IntType(64)


def outlined(module: Any, name: str, words: int, result: Any, emit: Callable[[Any, list[Any]], Any]) -> Any:
    """The function ``name`` of a module, which takes so many int64.

    Args:
        module: LLVM's.
        name: one for each different code.
        words: how many int64 it takes.
        result: LLVM type of what ``emit`` returns; void where that is None.
        emit: ``(builder, arguments)``, writes the function's body if the module has none yet.
    """
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(result, [_I64] * words), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    value = emit(builder, list(function.args))
    if value is None:
        builder.ret_void()
    else:
        builder.ret(value)
    return function


def outlined_intrinsic(name: str, words: int, emit: Callable[[Any, list[Any]], None]) -> Any:
    """What compiled code calls with so many int64: the function ``name`` of its module, which gives nothing back."""

    def generate(_target: Any, builder: Any, _signature: Any, arguments: list[Any]) -> Any:
        builder.call(outlined(builder.module, name, words, ir.VoidType(), emit), arguments)
        return ir.Constant(_I64, 0)

    # numba reads the number of parameters from the signature, so each count needs a function of its own.
    names: dict[str, Any] = {"result": types.int64(*[types.int64] * words), "generate": generate}
    parameters = "".join(f", a{n}" for n in range(words))
    return intrinsic(eval(f"lambda typingctx{parameters}: (result, generate)", names))
