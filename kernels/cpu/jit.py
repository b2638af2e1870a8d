"""Compiling to machine code, and where the result is kept.

numba's ahead-of-time cache is keyed by the processor and by the age of the file a function stands in, but not by the
functions it calls. The directory's name therefore carries a digest of the sources of all CPU kernels: a change in any
compiles anew, and two checkouts or two machines may share one directory.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.errors import NumbaWarning

Function = TypeVar("Function", bound=Callable[..., Any])

_SOURCES = Path(__file__).resolve().parent.parent
# Sums may be split over vector lanes and products fused into sums. Infinity and NaN keep their meaning.
_REORDER = {"reassoc", "contract", "nsz"}
# Python never calls these functions: without the wrappers for it they compile in half the time.
_INNER: dict[str, Any] = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_KERNEL = numba.types.void(numba.types.CPointer(numba.types.int64), numba.types.int64, numba.types.int64)


def inline(function: Function) -> Function:
    """A function for compiled code to call; no operation in it is reordered."""
    compiled: Function = numba.njit(**_INNER)(function)
    return compiled


def reordering(function: Function) -> Function:
    """A function for compiled code to call, whose sums may be added up in another, but for one length fixed, order."""
    compiled: Function = numba.njit(**_INNER, fastmath=_REORDER)(function)
    return compiled


class Kernel:
    """A function ``(arguments, member, members)`` that members of a team run at the same time.

    Any of them but the caller's, member 0, may come late or not at all, so work is shared out by ``take_task`` alone;
    the member's number is for what each needs of its own.

    arguments is a pointer to words of 8 bytes: sizes, addresses of tensors, bits of float64 numbers.
    """

    def __init__(self, function: Callable[[Any, int, int], None]) -> None:
        self._function = function
        self._compiled: Any = None
        self.address = 0

    def compile(self) -> None:
        """Make the machine code, or take it from the cache, and set ``address``."""
        if self._compiled is None:
            name = f"{self._function.__module__}.{self._function.__name__}"
            self._compiled = compile_cached(name, self._build)
            self.address = int(self._compiled.address)

    def _build(self) -> Any:
        return numba.cfunc(_KERNEL, cache=True, nopython=True, error_model="numpy")(self._function)


def compile_cached(name: str, build: Callable[[], Any]) -> Any:
    """Run ``build``, which compiles with ``cache=True``, and say so where it took a compiler rather than the cache.

    Raises NumbaWarning for code that cannot be kept, as it holds addresses of this process.
    """
    numba.config.CACHE_DIR = str(cache_directory())
    began = time.perf_counter()
    with warnings.catch_warnings():
        # Each start would take the compiler's seconds again.
        warnings.filterwarnings("error", message="Cannot cache", category=NumbaWarning)
        compiled = build()
    if not _from_cache(compiled):
        seconds, place = time.perf_counter() - began, f"kept in {cache_directory()}"
        print(f"kernels: compiled {name} for this CPU in {seconds:.1f} s, {place}", file=sys.stderr, flush=True)
    return compiled


def _from_cache(compiled: Any) -> bool:
    """Whether numba found a C callback, or the only signature of a function, in its cache."""
    hits = getattr(compiled, "cache_hits", None)
    return bool(sum(compiled.stats.cache_hits.values()) if hits is None else hits)


@cache
def cache_directory() -> Path:
    """The first of these that can be written: $NUMBA_CACHE_DIR, the checkout's .cache, the user's, a temporary one."""
    asked = os.environ.get("NUMBA_CACHE_DIR")
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "inflight-batcher"
    temporary = Path(tempfile.gettempdir()) / f"inflight-batcher-{os.getuid()}"
    places = [*([Path(asked)] if asked else []), _SOURCES.parent / ".cache", user, temporary]
    for place in places:
        directory = place / "numba" / _digest()
        if _writable(directory):
            return directory
    raise OSError(f"no place to keep compiled kernels: {', '.join(map(str, places))} cannot be written")


def _writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def _digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted({*_SOURCES.glob("cpu/*.py"), *_SOURCES.glob("*/cpu*.py"), *_SOURCES.glob("int16_kv/*.py")}):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
