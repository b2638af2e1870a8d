"""How far apart the cores of a team are, beside how long a prompt's step takes meanwhile.

The host of a virtual machine moves its cores as it likes, also between caches that share nothing. A program is not
told; but a line of memory that two threads write in turns then takes five times as long from one to the other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch

from backend.model.batch import StepInputs
from backend.model.decoder import Decoder
from kernels.cpu.line_distance import line_nanoseconds
from kernels.cpu.team import Team

from .decode_step import BLOCK_SIZE, Subject, pool_for, step_milliseconds


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
