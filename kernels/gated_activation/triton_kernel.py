"""Gated activations in the Triton language."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Schedule, cdiv, power_of_2

COLUMNS = 1024


def gated_activation(gate_up: Tensor, activation: str) -> Tensor:
    """``activation(gate) * up``; see ``reference.gated_activation``. gate_up: ``[T, 2 * I]``, contiguous.

    Raises:
        ValueError: an activation other than ``"silu"`` and ``"gelu_tanh"``.
    """
    if activation not in ("silu", "gelu_tanh"):
        raise ValueError(f"activation {activation!r}: expected 'silu' or 'gelu_tanh'")
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((rows, size), dtype=gate_up.dtype, device=gate_up.device)
    if out.numel():
        columns = min(COLUMNS, power_of_2(size))
        gated_activation_kernel[(rows, cdiv(size, columns))](
            gate_up, out, SIZE=size, COLUMNS=columns, ACTIVATION=activation, **Schedule(4).options()
        )
    return out


@triton.jit
def gated_activation_kernel(
    gate_up, out, SIZE: tl.constexpr, COLUMNS: tl.constexpr, ACTIVATION: tl.constexpr
):  # fmt: skip
    """Some columns of one row. Grid: ``(T, column blocks)``."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < SIZE
    start = gate_up + row * (2 * SIZE)
    gate = tl.load(start + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(start + SIZE + columns, mask=inside, other=0.0).to(tl.float32)
    if ACTIVATION == "silu":
        gated = gate * tl.sigmoid(gate)
    else:
        # (1 + tanh(u)) / 2 = sigmoid(2 u): no tanh is needed, and no cancellation arises.
        gated = gate * tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))
    tl.store(out + row * SIZE + columns, (gated * up).to(out.dtype.element_ty), mask=inside)
