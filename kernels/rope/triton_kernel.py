"""Rotary position embedding in the Triton language."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Schedule, cdiv, power_of_2

HEADS = 8


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate every head of every row; see ``reference.rope``. x: ``[T, H, D]``; rows and heads may be strided."""
    rows, heads, size = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        rope_kernel[(rows, cdiv(heads, HEADS))](
            x, cos, sin, out, x.stride(0), x.stride(1), TOTAL_HEADS=heads, HALF=size // 2,
            HALF_PAD=power_of_2(size // 2), HEADS=HEADS, **Schedule(4).options(),
        )  # fmt: skip
    return out


@triton.jit
def rotate(left, right, cos, sin):
    """The half-split rotation of pairs ``(left, right)``, float32."""
    return left * cos - right * sin, right * cos + left * sin


@triton.jit
def rope_kernel(
    x, cos, sin, out, row_stride, head_stride,
    TOTAL_HEADS: tl.constexpr, HALF: tl.constexpr, HALF_PAD: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Some heads of one row. Grid: ``(T, head blocks)``."""
    row = tl.program_id(0).to(tl.int64)
    heads, dims = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, HALF_PAD)
    inside = (heads < TOTAL_HEADS)[:, None] & (dims < HALF)[None, :]
    source = x + row * row_stride + heads[:, None] * head_stride + dims[None, :]
    left = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(source + HALF, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(cos + row * HALF + dims, mask=dims < HALF, other=0.0)[None, :]
    s = tl.load(sin + row * HALF + dims, mask=dims < HALF, other=0.0)[None, :]
    left, right = rotate(left, right, c, s)
    target = out + (row * TOTAL_HEADS + heads[:, None]) * (2 * HALF) + dims[None, :]
    tl.store(target, left.to(out.dtype.element_ty), mask=inside)
    tl.store(target + HALF, right.to(out.dtype.element_ty), mask=inside)
