"""Log-probabilities of drawn tokens and of the likeliest, from the logits as the model gave them."""

from __future__ import annotations

from torch import Tensor

from backend.sampling_params import SamplingParams
from backend.token_detail import TokenDetail
from kernels.token_log_probs.reference import log_probs


def detail_of(logits: Tensor, token: int, params: SamplingParams) -> TokenDetail:
    """What was asked for of one token. logits: float32 ``[vocab]``, unprocessed; of a beam, processed."""
    every = log_probs(logits)
    top: tuple[tuple[int, float], ...] = ()
    if params.num_top:
        best = every.topk(params.num_top)
        top = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    kept = logits.numpy().tobytes() if params.generation_logits else None
    return TokenDetail(float(every[token]), top, kept)
