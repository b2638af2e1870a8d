"""Logits -> tokens, row by row as each sequence asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from backend.sampling.row_state import RowState
from backend.sampling.token_details import detail_of
from backend.sampling_params import SamplingParams
from backend.token_detail import TokenDetail
from kernels.sampling import reference


class SamplingRow(NamedTuple):
    """How one row of logits is sampled. position: index of the token to be drawn, from the prompt's start."""

    params: SamplingParams
    position: int


class SpecialRow(NamedTuple):
    """A row whose logits are changed first, or whose token comes with details. place: of the row."""

    place: int
    state: RowState


class Sampled(NamedTuple):
    """A token for each row, or a ``NoToken`` in its place, and the details of those that asked for them, by row."""

    tokens: list[int]
    details: dict[int, TokenDetail]


def sample(logits: Tensor, rows: Sequence[SamplingRow]) -> list[int]:
    """One token id per row. logits: float32 [len(rows), vocab]. A row's token depends on that row alone."""
    # Not torch's, which takes ten times as long over a row.
    tokens = [int(row.argmax()) for row in logits.numpy()]
    for index, (params, position) in enumerate(rows):
        if not params.greedy:
            scaled = reference.filter_logits(
                logits[index], params.temperature, params.top_k, params.top_p, params.min_p
            )
            tokens[index] = int(reference.draw(scaled, params.seed, position))
    return tokens


def sample_with(logits: Tensor, rows: Sequence[SamplingRow], special: Sequence[SpecialRow]) -> Sampled:
    """As ``sample``, with the special rows processed first, in place, and their states told what was drawn."""
    raw = {}
    for place, state in special:
        params = state.params
        if params.detailed:
            # Beams are ranked by what is left of the logits after the changes.
            raw[place] = logits[place].clone() if params.processed and params.beams is None else logits[place]
        state.apply(logits[place], rows[place].position)
    tokens = sample(logits, rows)
    for place, state in special:
        if state.outcome is None:
            state.push(tokens[place])
        else:
            tokens[place] = state.outcome
            raw.pop(place, None)
    details = {place: detail_of(row, tokens[place], rows[place].params) for place, row in raw.items()}
    return Sampled(tokens, details)
