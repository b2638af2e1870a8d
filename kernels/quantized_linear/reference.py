"""Products with quantized weights in plain torch: widen, then multiply."""

import torch.nn.functional as F
from torch import Tensor

from kernels.quantized_linear.weights import ChannelWeight, GroupWeight


def dequantize(weight: ChannelWeight | GroupWeight) -> Tensor:
    """The weight as float32 ``[out, in]``, inputs in the order of the activations."""
    if isinstance(weight, ChannelWeight):
        return weight.numbers.float() * weight.scale[:, None]
    half = weight.group_size // 2
    groups = weight.packed.view(weight.packed.shape[0], -1, half)
    numbers = F.pad(groups & 15, (0, half)) + F.pad(groups >> 4, (half, 0))
    wide = (numbers * weight.scale.T[..., None] - weight.shift.T[..., None]).flatten(1)
    if weight.input_order is None:
        return wide
    return wide.new_empty(wide.shape).index_copy_(1, weight.input_order, wide)


def linear(x: Tensor, weight: ChannelWeight | GroupWeight, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias``. x: ``[T, in]``; bias: ``[out]`` or None. Returns ``[T, out]`` in x's dtype."""
    return F.linear(x.float(), dequantize(weight), None if bias is None else bias.float()).to(x.dtype)
