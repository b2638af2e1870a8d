"""RMSNorm in the Triton language, with and without a residual addition before it."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Schedule, power_of_2


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float) -> Tensor:
    """Normalise the last dimension; see ``reference.rms_norm``.

    Args:
        x: ``[..., D]``, at most three dimensions; the last one contiguous, the others strided at will.
        weight, eps, offset: as in the reference.

    Returns:
        ``[..., D]`` in x's dtype, contiguous.
    """
    rows = x if x.ndim == 3 else x.reshape(-1, 1, x.shape[-1])
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    launch_rms_norm(rows, None, weight, out, None, eps, offset)
    return out


def launch_rms_norm(
    x: Tensor, residual: Tensor | None, weight: Tensor, out: Tensor, summed: Tensor | None, eps: float, offset: float
) -> None:
    """Launch the kernel on ``x [M, N, D]``; the residual, where there is one, and the results are contiguous."""
    if x.numel() == 0:
        return
    size = x.shape[2]
    rms_norm_kernel[(x.shape[0], x.shape[1])](
        x, x if residual is None else residual, weight, out, out if summed is None else summed, eps, offset,
        x.stride(0), x.stride(1), x.shape[1], D=size, D_PAD=power_of_2(size), ADDED=residual is not None,
        **row_schedule(size).options(),
    )  # fmt: skip


def row_schedule(size: int) -> Schedule:
    """For a row of ``size`` elements held in registers: about eight of them a thread."""
    return Schedule(min(max(power_of_2(size) // 256, 1), 16))


@triton.jit(do_not_specialize=["inner"])
def rms_norm_kernel(
    x, residual, weight, out, summed, eps, offset, outer_stride, inner_stride, inner,
    D: tl.constexpr, D_PAD: tl.constexpr, ADDED: tl.constexpr,
):  # fmt: skip
    """One row, kept in registers. Grid: ``(M, N)``."""
    outer, row = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dims = tl.arange(0, D_PAD)
    inside = dims < D
    place = (outer * inner + row) * D + dims
    wide = tl.load(x + outer * outer_stride + row * inner_stride + dims, mask=inside, other=0.0).to(tl.float32)
    if ADDED:
        wide += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
        narrow = wide.to(summed.dtype.element_ty)
        tl.store(summed + place, narrow, mask=inside)
        wide = narrow.to(tl.float32)
    mean_square = tl.sum(wide * wide, axis=0) / D
    factor = offset + tl.load(weight + dims, mask=inside, other=0.0).to(tl.float32)
    result = wide * tl.rsqrt(mean_square + eps) * factor
    tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)
