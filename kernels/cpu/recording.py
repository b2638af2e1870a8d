"""The memory that a team of threads works on, and what it has run on it, so that it can run again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

_MAX_ARGUMENTS = 64


def argument_block() -> tuple[memoryview, int]:
    """Words for a kernel's arguments, at most 64, and their address, which holds for as long as the memoryview does."""
    words = np.zeros(_MAX_ARGUMENTS, dtype=np.int64)
    return words.data, words.ctypes.data


class Workspace:
    """Memory for what operations give, taken again by the same operation in every layer and step.

    So it stays in the caches of the threads that write it: from an allocator, the next operation would get what another
    thread has just written. Each operation has two pieces for each width of its rows and takes them in turns: a result
    must have been used by the time the same operation has run twice more.
    """

    def __init__(self) -> None:
        self._pieces: dict[tuple[str, tuple[int, ...]], list[Tensor]] = {}

    def empty(self, user: str, shape: tuple[int, ...]) -> Tensor:
        """The piece whose turn it is, or where it is too small a new one."""
        pieces = self._pieces.setdefault((user, shape[1:]), [torch.empty(0), torch.empty(0)])
        pieces.reverse()
        count = math.prod(shape)
        if pieces[0].numel() < count:
            pieces[0] = torch.empty(count)
        return pieces[0][:count].view(shape)


class Recording:
    """Kernels in the order in which they ran, with their arguments and the memory they work on.

    Each operation has two pieces of memory of each shape for its results and takes them in turns, as it would get
    them from an allocator: so a result must have been used by the time the same operation has run twice more.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[int, int, int]] = []
        self._packed: Any = None
        self._kept: list[Any] = []
        self._results: dict[tuple[str, tuple[int, ...]], list[Tensor]] = {}

    def arguments(self) -> tuple[memoryview, int]:
        """A block for a kernel's arguments, and its address."""
        words, address = argument_block()
        self._kept.append(words)
        return words, address

    def add(self, code: int, arguments: int, members: int) -> None:
        """A kernel that runs now."""
        self._calls.append((code, arguments, members))

    def empty(self, user: str, shape: tuple[int, ...]) -> Tensor:
        """The piece whose turn it is."""
        pieces = self._results.setdefault((user, shape), [torch.empty(shape), torch.empty(shape)])
        pieces.reverse()
        return pieces[0]

    def keep(self, *things: Any) -> None:
        """Hold memory for as long as the recording."""
        self._kept.extend(things)

    def calls(self) -> tuple[int, int]:
        """Address and number of the calls."""
        if self._packed is None:
            self._packed = np.array(self._calls, dtype=np.int64)
        return self._packed.ctypes.data, len(self._calls)
