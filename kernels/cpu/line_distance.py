"""How long a line of the cache takes from one thread of a team to another: a fifth where their cores share a cache."""

import time
from typing import Any

import numpy as np
from numba import carray

from kernels.cpu.jit import Kernel
from kernels.cpu.memory import load, store
from kernels.cpu.team import Team

_TURNS = 300  # of each of the two
_PATIENCE = 3_000_000  # looks at the line before a thread gives up, as the other may not have come
_TRIES = 4


def _take_turns(arguments: Any, member: int, _members: int) -> None:
    """Member 0 makes the word odd, member 1 even again."""
    line = carray(arguments, (1,))[0]
    for turn in range(_TURNS if member < 2 else 0):
        looks = 0
        while load(line) != 2 * turn + member:
            looks += 1
            if looks > _PATIENCE:
                return
        store(line, 2 * turn + member + 1)


_KERNEL = Kernel(_take_turns)


def line_nanoseconds(team: Team) -> float | None:
    """How long a cache line takes from one of the team's first two threads to the other: the least of four tries.

    None where the second thread came to none of them.
    """
    _KERNEL.compile()
    memory = np.zeros(16, dtype=np.int64)
    at = -memory.ctypes.data % 64  # a line of its own
    word, times = memory[at // 8 :], []
    for _ in range(_TRIES):
        word[0] = 0
        began = time.perf_counter()
        team.run(_KERNEL, "q", word.ctypes.data)
        spent = time.perf_counter() - began
        if word[0] == 2 * _TURNS:
            times.append(spent * 1e9 / (2 * _TURNS))
    return min(times, default=None)
