"""Repetition, frequency and presence penalties on one row of logits."""

from __future__ import annotations

import torch
from torch import Tensor

from backend.sampling.token_history import TokenHistory
from backend.sampling_params import SamplingParams
from kernels.penalties import reference


class Penalties:
    """Those of one request. Only tokens that the sequence holds are touched."""

    def __init__(self, params: SamplingParams) -> None:
        self._factors = [
            torch.tensor([value], dtype=torch.float32)
            for value in (params.repetition_penalty, params.frequency_penalty, params.presence_penalty)
        ]
        self._no_ids, self._no_bias = torch.empty((1, 0), dtype=torch.int32), torch.empty((1, 0))

    def apply(self, row: Tensor, history: TokenHistory) -> None:
        """Penalise float32 logits ``[vocab]`` in place."""
        ids, counts, in_prompt = history.ids, history.output_counts[None], history.in_prompt[None]
        repetition, frequency, presence = self._factors
        penalised = reference.penalise(
            row[ids][None], counts, in_prompt, repetition, frequency, presence, self._no_ids, self._no_bias
        )
        row[ids] = penalised[0]
