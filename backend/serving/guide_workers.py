"""GuideWorkers: a few threads that compile guides, so that neither the engine nor other clients wait for one."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from backend.errors import InvalidRequest
from backend.guide import Guide
from backend.serving.guided_inputs import GuideText
from backend.serving.response_stream import Failure

_log = logging.getLogger(__name__)
_NUM_THREADS = 2
_MOST_KEPT = 32


class _Compiler(Protocol):
    def compile(self, kind: str, text: str) -> Guide: ...


class GuideWorkers:
    """Compiles each guide once, and keeps those used lately: many requests ask for the same one."""

    def __init__(self, compiler: _Compiler | None, cancel: Callable[[int], None]) -> None:
        """compiler: None where nothing is ever asked of it. cancel: ends the engine's request of this number."""
        self._compiler = compiler
        self._cancel = cancel
        self._threads = ThreadPoolExecutor(_NUM_THREADS, "guides")
        self._closing = False
        self._lock = threading.Lock()
        self._kept: OrderedDict[GuideText, Guide] = OrderedDict()
        self._pending: dict[int, bool] = {}  # request numbers; whether they were cancelled

    @property
    def num_pending(self) -> int:
        """Requests whose guides are not compiled yet."""
        return len(self._pending)

    def submit(
        self,
        wish: GuideText,
        numbers: Iterable[int],
        ready: Callable[[Guide], None],
        fail: Callable[[Failure], None],
    ) -> None:
        """Call one of the two, here if the guide is known, else in a worker. numbers: of the requests that wait."""
        with self._lock:
            found = self._kept.get(wish)
            if found is not None:
                self._kept.move_to_end(wish)
            else:
                self._pending |= dict.fromkeys(numbers, False)
        if found is not None:
            ready(found)
        else:
            self._threads.submit(self._compile, wish, list(numbers), ready, fail)

    def cancel(self, number: int) -> None:
        """End a request of the engine; if it waits here, as soon as the engine has it."""
        with self._lock:
            if number in self._pending:
                self._pending[number] = True
                return
        self._cancel(number)

    def close(self) -> None:
        """Wait for the guides under way; requests behind them get an error."""
        self._closing = True
        self._threads.shutdown()

    def _compile(
        self, wish: GuideText, numbers: list[int], ready: Callable[[Guide], None], fail: Callable[[Failure], None]
    ) -> None:
        try:
            if self._closing:
                fail(Failure("the model is being unloaded", "UNAVAILABLE"))
            else:
                ready(self._guide(wish))
        except InvalidRequest as error:
            fail(Failure(str(error), "INVALID_ARG"))
        except BaseException:  # what the library calls a panic is no Exception
            _log.exception("a guide could not be compiled")
            fail(Failure("guided_decoding_guide: could not be compiled", "INTERNAL"))
        with self._lock:
            cancelled = [number for number in numbers if self._pending.pop(number)]
        for number in cancelled:
            self._cancel(number)

    def _guide(self, wish: GuideText) -> Guide:
        assert self._compiler is not None
        with self._lock:
            found = self._kept.get(wish)  # another request brought it meanwhile
        guide = found if found is not None else self._compiler.compile(*wish)
        with self._lock:
            self._kept[wish] = guide
            self._kept.move_to_end(wish)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return guide
