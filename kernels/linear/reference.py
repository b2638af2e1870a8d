"""The linear map in plain torch."""

import torch
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


def round_groups(x: Tensor, size: int, largest: int) -> tuple[Tensor, Tensor]:
    """As ``round_rows``, in groups of neighbouring columns, each by its own largest element.

    The factor is a float32, as where it is done fast: so few bits make a difference of a number that lies half way.

    Args:
        x: float ``[T, in]``.
        size: columns of a group; the last may have fewer.
        largest: what the largest element of a group becomes.

    Returns:
        Whole numbers, float64 ``[T, in]``, and what each is worth, float64 ``[T, in]``.
    """
    groups = F.pad(x.float(), (0, -x.shape[1] % size)).view(len(x), -1, size)
    tops = groups.abs().amax(dim=2, keepdim=True)
    factor = torch.full_like(tops, largest) / tops  # scalar / tensor would be a product with the reciprocal
    numbers = torch.round(groups.double() * factor.double()).nan_to_num()
    step = torch.where(groups.isfinite().all(dim=2, keepdim=True), 1.0 / factor.double(), torch.nan)
    return numbers.flatten(1)[:, : x.shape[1]], step.expand_as(numbers).flatten(1)[:, : x.shape[1]]


def round_rows(x: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """The whole numbers by which an integer product takes float rows.

    Args:
        x: float ``[T, in]``.
        largest: what the largest element of a row becomes; half of a step is the error at most.

    Returns:
        Whole numbers, float64 ``[T, in]``, and what one of them is worth, float64 ``[T, 1]``: NaN where a row is not
        finite. A row of zeros is worth nothing.
    """
    wide = x.double()
    scale = wide.abs().amax(dim=1, keepdim=True) / largest
    scale = torch.where(wide.isfinite().all(dim=1, keepdim=True), scale, torch.nan)
    return torch.round(wide / scale).nan_to_num(), scale
