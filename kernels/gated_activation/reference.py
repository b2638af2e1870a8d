"""Gated activations in plain torch."""

import torch.nn.functional as F
from torch import Tensor


def gated_activation(gate_up: Tensor, activation: str) -> Tensor:
    """``activation(gate) * up``, the gated linear unit of arXiv:2002.05202.

    Args:
        gate_up: ``[T, 2 * I]``, the gate's columns first, then the values it gates.
        activation: ``"silu"`` or ``"gelu_tanh"`` (GELU by its tanh approximation, arXiv:1606.08415).

    Returns:
        ``[T, I]`` in gate_up's dtype; the arithmetic is float32.

    Raises:
        ValueError: another activation.
    """
    gate, up = gate_up.float().chunk(2, dim=-1)
    if activation == "silu":
        gate = F.silu(gate)
    elif activation == "gelu_tanh":
        gate = F.gelu(gate, approximate="tanh")
    else:
        raise ValueError(f"activation {activation!r}: expected 'silu' or 'gelu_tanh'")
    return (gate * up).to(gate_up.dtype)
