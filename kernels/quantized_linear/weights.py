"""Quantized weights: how they are kept, and how they are made or read from AWQ and GPTQ checkpoints.

Four bits, for a group of G inputs of one output, lie in G / 2 bytes: byte ``j`` holds input ``j`` in its low half and
input ``j + G / 2`` in its high half. So a kernel takes a group apart into two runs of inputs, each contiguous in the
activations, and never interleaves anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Which nibble of a 32-bit word holds each of eight neighbouring outputs in an AWQ checkpoint."""


@dataclass(frozen=True, slots=True)
class ChannelWeight:
    """One scale per output. numbers: int8 or float8_e4m3fn ``[out, in]``; scale: float32 ``[out]``."""

    numbers: Tensor
    scale: Tensor


@dataclass(frozen=True, slots=True)
class GroupWeight:
    """Four bits, scale and zero point per group of inputs: the weight is ``(number - zero) * scale``.

    packed: uint8 ``[out, in / 2]``, see the module. scale: ``[in / group_size, out]``; shift: the same, zero * scale.
    input_order: int64 ``[in]``, the order of inputs that the groups are made of, or None where it is theirs.
    """

    packed: Tensor
    scale: Tensor
    shift: Tensor
    group_size: int
    input_order: Tensor | None = None


def quantize_channels(weight: Tensor, dtype: torch.dtype) -> ChannelWeight:
    """Round a weight ``[out, in]`` to int8 or float8_e4m3fn."""
    wide = weight.float()
    scale = wide.abs().amax(dim=1).clamp(min=1e-12) / LARGEST[dtype]
    scaled = wide / scale[:, None]
    return ChannelWeight((scaled.round() if dtype == torch.int8 else scaled).to(dtype), scale)


def quantize_groups(weight: Tensor, group_size: int) -> GroupWeight:
    """Round a weight ``[out, in]`` to 16 levels between the smallest and largest of each group."""
    groups = weight.float().view(weight.shape[0], -1, group_size)
    low, high = groups.amin(dim=2).clamp(max=0.0), groups.amax(dim=2).clamp(min=0.0)
    scale = (high - low).clamp(min=1e-12) / 15
    zero = (-low / scale).round()
    numbers = ((groups / scale[..., None]).round() + zero[..., None]).clamp(0, 15)
    return make_group_weight(numbers.flatten(1).to(torch.uint8), scale.T, zero.T, None)


def make_group_weight(numbers: Tensor, scale: Tensor, zero: Tensor, input_order: Tensor | None) -> GroupWeight:
    """Pack numbers 0 to 15, uint8 ``[out, in]``; scale and zero: ``[in / group_size, out]``."""
    group_size = numbers.shape[1] // scale.shape[0]
    low, high = numbers.reshape(numbers.shape[0], -1, group_size).chunk(2, dim=2)
    shift = (zero.float() * scale.float()).contiguous()
    return GroupWeight((low | high << 4).flatten(1), scale.float().contiguous(), shift, group_size, input_order)


def from_gptq(qweight: Tensor, qzeros: Tensor, scales: Tensor, g_idx: Tensor | None) -> GroupWeight:
    """A weight of a GPTQ checkpoint (AutoGPTQ's format, 4 bits).

    Args:
        qweight: int32 ``[in / 8, out]``, eight neighbouring inputs in a word, the first lowest.
        qzeros: int32 ``[groups, out / 8]``, eight neighbouring outputs in a word; zero points less one.
        scales: ``[groups, out]``.
        g_idx: int32 ``[in]``, the group of each input, or None where they lie in order.

    Raises:
        ValueError: g_idx does not give all groups the same number of inputs.
    """
    numbers = _nibbles(qweight).permute(1, 0, 2).flatten(1)
    zero = _nibbles(qzeros).flatten(1) + 1
    size, groups = numbers.shape[1], scales.shape[0]
    if g_idx is None or torch.equal(g_idx.long(), torch.arange(size, device=g_idx.device) // (size // groups)):
        return make_group_weight(numbers, scales, zero, None)
    if not torch.equal(g_idx.long().bincount(minlength=groups), torch.full((groups,), size // groups)):
        raise ValueError("g_idx: expected the same number of inputs in every group")
    order = torch.argsort(g_idx.long(), stable=True)
    return make_group_weight(numbers[:, order], scales, zero, order)


def from_awq(qweight: Tensor, qzeros: Tensor, scales: Tensor) -> GroupWeight:
    """A weight of an AWQ checkpoint (AutoAWQ's GEMM format, 4 bits).

    Args:
        qweight: int32 ``[in, out / 8]``, eight neighbouring outputs in a word, in AWQ_ORDER.
        qzeros: int32 ``[groups, out / 8]``, likewise.
        scales: ``[groups, out]``.
    """
    order = list(AWQ_ORDER)
    numbers, zero = (_nibbles(words)[..., order].flatten(1) for words in (qweight, qzeros))
    return make_group_weight(numbers.T.contiguous(), scales, zero, None)


def _nibbles(words: Tensor) -> Tensor:
    """int32 ``[..., n]`` -> uint8 ``[..., n, 8]``, the lowest four bits first."""
    shifts = torch.arange(0, 32, 4, device=words.device, dtype=torch.int32)
    return (words[..., None] >> shifts & 15).to(torch.uint8)
