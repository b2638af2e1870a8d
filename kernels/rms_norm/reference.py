"""RMSNorm in plain torch."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float) -> Tensor:
    """``x / sqrt(mean(x**2) + eps) * (offset + weight)`` over the last dimension (arXiv:1910.07467).

    Args:
        x: ``[..., D]``.
        weight: ``[D]``.
        eps: added to the mean of squares.
        offset: 0 for most families, 1 for Gemma, whose weights are stored as the difference from one.

    Returns:
        ``[..., D]`` in x's dtype; the arithmetic is float32.
    """
    wide = x.float()
    normalised = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (normalised * (offset + weight.float())).to(x.dtype)
