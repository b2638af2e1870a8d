"""How far apart the cores of a team are, beside how long a prompt's step takes meanwhile.

The host of a virtual machine moves its cores as it likes, also between caches that share nothing. A program is not
told; but a line of memory that two threads write in turns then takes five times as long from one to the other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numba import carray

from backend.model.batch import StepInputs
from backend.model.decoder import Decoder
from kernels.cpu.jit import Kernel
from kernels.cpu.memory import load, store
from kernels.cpu.team import Team

from .decode_step import BLOCK_SIZE, Subject, pool_for, step_milliseconds

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


TAKE_TURNS = Kernel(_take_turns)


def line_nanoseconds(team: Team) -> float | None:
    """How long a cache line takes from one of the team's first two threads to the other: the least of four tries.

    None where the second thread came to none of them.
    """
    TAKE_TURNS.compile()
    memory = np.zeros(16, dtype=np.int64)
    at = -memory.ctypes.data % 64  # a line of its own
    word, times = memory[at // 8 :], []
    for _ in range(_TRIES):
        word[0] = 0
        began = time.perf_counter()
        team.run(TAKE_TURNS, "q", word.ctypes.data)
        spent = time.perf_counter() - began
        if word[0] == 2 * _TURNS:
            times.append(spent * 1e9 / (2 * _TURNS))
    return min(times, default=None)


def distances(subject: Subject, tokens: int, rounds: int, pause: float) -> Iterator[dict[str, Any]]:
    """A line per round: nanoseconds of a cache line before and after some steps of a prompt, and their median.

    Args:
        subject: the model.
        tokens: of the prompt.
        rounds: how many.
        pause: seconds between them, in which the host may move the cores.
    """
    operations = subject.operations()
    config, weights = subject.load(operations)
    decoder, inputs = Decoder(config, weights, operations), prompt_batch(tokens)
    pool = pool_for(config, int(inputs.block_tables.max()) + 1, subject.numbers.pool)
    team = operations.recorder
    assert isinstance(team, Team)
    for turn in range(rounds):
        if turn:
            time.sleep(pause)
        before = line_nanoseconds(team)
        step = statistics.median(step_milliseconds(decoder, inputs, pool, 5))
        lines = [ns and round(ns) for ns in (before, line_nanoseconds(team))]
        yield {"line_ns": lines, "tokens": tokens, "step_ms": round(step, 1)}


def prompt_batch(tokens: int) -> StepInputs:
    """One new sequence."""
    positions = torch.arange(tokens)
    return StepInputs(
        token_ids=positions % 1000,
        positions=positions,
        query_start=torch.tensor([0, tokens], dtype=torch.int32),
        kv_lengths=torch.tensor([tokens], dtype=torch.int32),
        block_tables=torch.arange(1, -(-tokens // BLOCK_SIZE) + 1, dtype=torch.int32)[None],
        slot_mapping=positions + BLOCK_SIZE,
        logit_rows=torch.tensor([tokens - 1]),
    )
