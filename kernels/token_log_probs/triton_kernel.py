"""Log probabilities of given tokens in the Triton language: one pass, nothing of the vocabulary's size written."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Schedule, power_of_2

COLUMNS = 4096


def token_log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """See ``reference.token_log_probs``. Rows of logits are contiguous."""
    rows, vocab = logits.shape
    out = torch.empty(rows, dtype=torch.float32, device=logits.device)
    if rows:
        columns = min(COLUMNS, power_of_2(vocab))
        token_log_probs_kernel[(rows,)](
            logits, tokens, out, vocab, logits.stride(0), COLUMNS=columns, **Schedule(8, 2).options()
        )
    return out


@triton.jit
def token_log_probs_kernel(logits, tokens, out, vocab, row_stride, COLUMNS: tl.constexpr):
    """One row; every lane keeps its own largest and sum, merged at the end. Grid: ``(R,)``."""
    row, lanes = tl.program_id(0).to(tl.int64), tl.arange(0, COLUMNS)
    source = logits + row * row_stride
    largest = tl.full([COLUMNS], -float("inf"), tl.float32)
    total = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, vocab, COLUMNS):
        columns = start + lanes
        x = tl.load(source + columns, mask=columns < vocab, other=-float("inf")).to(tl.float32)
        highest = tl.maximum(largest, x)
        base = tl.where(highest == -float("inf"), 0.0, highest)
        total = total * tl.exp(largest - base) + tl.exp(x - base)
        largest = highest
    top = tl.max(largest, axis=0)
    log_sum = top + tl.log(tl.sum(total * tl.exp(largest - top), axis=0))
    chosen = tl.load(source + tl.load(tokens + row)).to(tl.float32)
    tl.store(out + row, chosen - log_sum)
