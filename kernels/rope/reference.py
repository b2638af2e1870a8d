"""Rotary position embedding in plain torch."""

import torch
from torch import Tensor


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair ``(x[i], x[i + D/2])`` of every head by its row's ``i``-th angle.

    The pairing is the half-split one of GPT-NeoX that Hugging Face checkpoints are stored for, not the
    interleaved one of RoFormer (arXiv:2104.09864, section 3.4.2).

    Args:
        x: ``[T, H, D]``, D even.
        cos: float32 ``[T, D/2]``; any constant factor on the rotation is already in it.
        sin: float32 ``[T, D/2]``.

    Returns:
        ``[T, H, D]`` in x's dtype.
    """
    left, right = x.float().chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1).to(x.dtype)
