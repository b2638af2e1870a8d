"""The linear map in plain torch."""

import torch.nn.functional as F
from torch import Tensor


def pack_linear(weight: Tensor) -> Tensor:
    """Lay out a weight ``[out, in]`` as ``linear`` reads it; here, as it is."""
    return weight


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias``.

    Args:
        x: ``[T, in]``.
        weight: what ``pack_linear`` made of a weight ``[out, in]`` in x's dtype.
        bias: ``[out]`` or None.

    Returns:
        ``[T, out]`` in x's dtype. Not widened by hand: that would copy every weight at each call, and torch's
        product of narrow types adds up in float32 already.
    """
    return F.linear(x, weight, bias)
