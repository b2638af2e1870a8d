"""Log probabilities of given tokens in plain torch."""

import torch
from torch import Tensor


def log_probs(logits: Tensor) -> Tensor:
    """``log_softmax`` of the last dimension. Returns float32."""
    return torch.log_softmax(logits.float(), dim=-1)


def token_log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """``log_softmax(logits)[row, tokens[row]]``. logits: ``[R, V]``; tokens: int64 ``[R]``. Returns float32 ``[R]``."""
    return log_probs(logits).gather(1, tokens[:, None])[:, 0]
