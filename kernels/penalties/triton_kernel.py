"""Penalties and bias in the Triton language."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Schedule, cdiv, power_of_2

COLUMNS = 2048


def penalise(
    logits: Tensor,
    output_counts: Tensor,
    in_prompt: Tensor,
    repetition: Tensor,
    frequency: Tensor,
    presence: Tensor,
    bias_ids: Tensor,
    bias: Tensor,
) -> Tensor:
    """Logits after penalties, then bias; see ``reference.penalise``. Rows of logits are contiguous."""
    (rows, vocab), width = logits.shape, bias_ids.shape[1]
    out = torch.empty((rows, vocab), dtype=torch.float32, device=logits.device)
    if rows == 0:
        return out
    columns = min(COLUMNS, power_of_2(vocab))
    penalise_kernel[(rows, cdiv(vocab, columns))](
        logits, output_counts, in_prompt, repetition, frequency, presence, out, vocab, logits.stride(0),
        COLUMNS=columns, **Schedule(4).options(),
    )  # fmt: skip
    if width:
        bias_kernel[(rows,)](out, bias_ids, bias, vocab, width, WIDTH=power_of_2(width), **Schedule(1).options())
    return out


@triton.jit
def penalise_kernel(
    logits, output_counts, in_prompt, repetition, frequency, presence, out, vocab, row_stride, COLUMNS: tl.constexpr
):  # fmt: skip
    """Some columns of one row. Grid: ``(R, column blocks)``."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < vocab
    wide = tl.load(logits + row * row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    count = tl.load(output_counts + row * vocab + columns, mask=inside, other=0)
    seen = (count > 0) | (tl.load(in_prompt + row * vocab + columns, mask=inside, other=0) != 0)
    factor = tl.load(repetition + row)
    wide = tl.where(seen, wide * tl.where(wide > 0.0, tl.div_rn(1.0, factor), factor), wide)
    wide -= tl.load(frequency + row) * count.to(tl.float32)
    wide = tl.where(count > 0, wide - tl.load(presence + row), wide)
    tl.store(out + row * vocab + columns, wide, mask=inside)


@triton.jit
def bias_kernel(out, bias_ids, bias, vocab, width, WIDTH: tl.constexpr):
    """All of one row's bias; the ids are distinct, so no two lanes meet. Grid: ``(R,)``."""
    row, lanes = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    ids = tl.load(bias_ids + row * width + lanes, mask=lanes < width, other=-1)
    added = tl.load(bias + row * width + lanes, mask=lanes < width, other=0.0)
    place = out + row * vocab + ids
    tl.store(place, tl.load(place, mask=ids >= 0, other=0.0) + added, mask=ids >= 0)
