"""The Triton kernels as the operations that a decoder runs on."""

from __future__ import annotations

from torch import Tensor

from kernels.add_rms_norm import triton_kernel as add_rms_norm
from kernels.gated_activation import triton_kernel as gated_activation
from kernels.linear import reference as dense_linear
from kernels.linear.gated import in_two
from kernels.operations import Operations, PagedAttention
from kernels.paged_attention import triton_decode
from kernels.paged_attention import triton_kernel as ragged_attention
from kernels.quantized_linear import triton_kernel as quantized_linear
from kernels.quantized_linear.weights import ChannelWeight, GroupWeight
from kernels.rms_norm import triton_kernel as rms_norm
from kernels.rope_and_write import triton_kernel as rope_and_write


def mixed_operations() -> Operations:
    """For any batch: prompt chunks and decode rows together."""
    return _operations(ragged_attention.paged_attention)


def decode_operations() -> Operations:
    """For batches where row ``s`` is the one row of sequence ``s``: attention split over the whole device."""
    return _operations(triton_decode.paged_attention)


def linear(x: Tensor, weight: Tensor | ChannelWeight | GroupWeight, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias``: dense weights by the vendor's library, quantized ones by the Triton kernels."""
    if isinstance(weight, Tensor):
        return dense_linear.linear(x, weight, bias)
    return quantized_linear.linear(x, weight, bias)


def _operations(attention: PagedAttention) -> Operations:
    return Operations(
        paged_attention=attention,
        rope_and_write=rope_and_write.rope_and_write,
        rms_norm=rms_norm.rms_norm,
        add_rms_norm=add_rms_norm.add_rms_norm,
        gated_activation=gated_activation.gated_activation,
        pack_linear=dense_linear.pack_linear,
        linear=linear,
        gated_linear=in_two(linear, gated_activation.gated_activation),
    )
