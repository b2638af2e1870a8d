"""Logits -> tokens, row by row as each sequence asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from backend.sampling_params import SamplingParams
from kernels.sampling import reference


class SamplingRow(NamedTuple):
    """How one row of logits is sampled. position: index of the token to be drawn, from the prompt's start."""

    params: SamplingParams
    position: int


def sample(logits: Tensor, rows: Sequence[SamplingRow]) -> list[int]:
    """One token id per row. logits: float32 [len(rows), vocab]. A row's token depends on that row alone."""
    tokens: list[int] = torch.argmax(logits, dim=-1).tolist()
    for index, (params, position) in enumerate(rows):
        if not params.greedy:
            scaled = reference.filter_logits(
                logits[index], params.temperature, params.top_k, params.top_p, params.min_p
            )
            tokens[index] = int(reference.draw(scaled, params.seed, position))
    return tokens
