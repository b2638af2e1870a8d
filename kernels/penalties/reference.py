"""Penalties and bias in plain torch."""

import torch
from torch import Tensor


def penalise(
    logits: Tensor,
    output_counts: Tensor,
    in_prompt: Tensor,
    repetition: Tensor,
    frequency: Tensor,
    presence: Tensor,
    bias_ids: Tensor,
    bias: Tensor,
) -> Tensor:
    """Logits after penalties, then bias.

    A token seen in prompt or output has its logit divided by the repetition penalty where positive and multiplied
    where not (CTRL, arXiv:1909.05858, section 4.1). Frequency is subtracted once per occurrence in the output,
    presence once if there is any.

    Args:
        logits: ``[R, V]``.
        output_counts: int32 ``[R, V]``, how often the output holds each token.
        in_prompt: bool ``[R, V]``.
        repetition, frequency, presence: float32 ``[R]``; 1, 0 and 0 change nothing.
        bias_ids: int32 ``[R, B]``, distinct token ids; -1 where a row has fewer.
        bias: float32 ``[R, B]``.

    Returns:
        float32 ``[R, V]``.
    """
    wide = logits.float()
    seen = (output_counts > 0) | in_prompt
    factor = torch.where(wide > 0, 1 / repetition[:, None], repetition[:, None])
    wide = torch.where(seen, wide * factor, wide)
    wide = wide - frequency[:, None] * output_counts - presence[:, None] * (output_counts > 0)
    used = bias_ids >= 0
    return wide.scatter_add(1, bias_ids.clamp(min=0).long(), torch.where(used, bias, 0.0))
