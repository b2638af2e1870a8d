"""Drawing tokens in the Triton language: filters and the stateless Gumbel draw of ``reference``, row by row.

    cut_kernel (only where a row is filtered)    one program a row: threshold and last tie
    draw_kernel                                  many programs a row: noise, best token of some columns
    best_kernel                                  one program a row: best of those

Neither probabilities nor noise are ever written to memory.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Schedule, cdiv, power_of_2
from kernels.sampling.triton_filter import cut_kernel, ordered

DRAW_COLUMNS = 1024
CUT_COLUMNS = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSampling:
    """How each row is sampled: tensors ``[R]`` on the logits' device.

    temperature: float32, 0 = greedy. top_k: int32, 0 = all. top_p: float32, 1 = all. min_p: float32, 0 = all.
    seed: int64, the 64 bits of the seed. position: int32, of the token to be drawn.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seed: Tensor
    position: Tensor


def sample(logits: Tensor, rows: RowSampling, filtered: bool = True) -> Tensor:
    """One token per row: ``reference.draw(reference.filter_logits(...))``, or the likeliest token where greedy.

    Args:
        logits: ``[R, V]``; rows are contiguous.
        rows: how each is sampled.
        filtered: False promises that no row has a top_k, top_p or min_p, and saves the search.

    Returns:
        int64 ``[R]``.
    """
    count, vocab = logits.shape
    device = logits.device
    tokens = torch.empty(count, dtype=torch.int64, device=device)
    if count == 0:
        return tokens
    # Where nothing is filtered the kernel does not look at the cuts.
    thresholds, last_ties = find_cuts(logits, rows) if filtered else (tokens, tokens)
    columns = min(DRAW_COLUMNS, power_of_2(vocab, 4))
    blocks = cdiv(vocab, columns)
    best = torch.empty((count, blocks), dtype=torch.float32, device=device)
    best_ids = torch.empty((count, blocks), dtype=torch.int32, device=device)
    draw_kernel[(count, blocks)](
        logits, rows.temperature, rows.seed, rows.position, thresholds, last_ties, best, best_ids, vocab,
        logits.stride(0), blocks, COLUMNS=columns, FILTERED=filtered, **Schedule(4).options(),
    )  # fmt: skip
    best_kernel[(count,)](best, best_ids, tokens, blocks, BLOCKS=power_of_2(blocks), **Schedule(1).options())
    return tokens


def find_cuts(logits: Tensor, rows: RowSampling) -> tuple[Tensor, Tensor]:
    """Thresholds and last ties, int32 ``[R]``: see ``triton_filter``. Of greedy rows, whatever keeps everything."""
    count, vocab = logits.shape
    thresholds, last_ties = (torch.empty(count, dtype=torch.int32, device=logits.device) for _ in range(2))
    scaled = torch.empty((count, vocab), dtype=torch.float32, device=logits.device)
    cut_kernel[(count,)](
        logits, scaled, rows.temperature, rows.top_k, rows.top_p, rows.min_p, thresholds, last_ties, vocab,
        logits.stride(0), COLUMNS=min(CUT_COLUMNS, power_of_2(vocab)), **Schedule(16).options(),
    )  # fmt: skip
    return thresholds, last_ties


@triton.jit
def uniform(seed, position, first, COLUMNS: tl.constexpr):
    """Numbers in (0, 1) of COLUMNS tokens from ``first``, a multiple of 4, on: one counter serves four."""
    index = (first // 4 + tl.arange(0, COLUMNS // 4)).to(tl.uint32)
    nothing = index * 0
    word0, word1, word2, word3 = tl.philox(seed, index, nothing + position.to(tl.uint32), nothing, nothing)
    words = tl.join(tl.join(word0, word2), tl.join(word1, word3)).reshape([COLUMNS])
    return ((words >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07


@triton.jit
def draw_kernel(
    logits, temperature, seeds, positions, thresholds, last_ties, best, best_ids, vocab, row_stride, blocks,
    COLUMNS: tl.constexpr, FILTERED: tl.constexpr,
):  # fmt: skip
    """The best token of some columns of one row. Grid: ``(R, column blocks)``."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    heat = tl.load(temperature + row)
    x = tl.load(logits + row * row_stride + columns, mask=columns < vocab, other=-float("inf")).to(tl.float32)
    if heat > 0.0:
        x = tl.div_rn(x, heat)
        if FILTERED:
            key, threshold = ordered(x), tl.load(thresholds + row)
            kept = (key > threshold) | ((key == threshold) & (columns <= tl.load(last_ties + row)))
            x = tl.where(kept, x, -float("inf"))
        noise = uniform(tl.load(seeds + row), tl.load(positions + row), block * COLUMNS, COLUMNS)
        x -= tl.log(-tl.log(noise))
    tl.store(best + row * blocks + block, tl.max(x, axis=0))
    tl.store(best_ids + row * blocks + block, block * COLUMNS + tl.argmax(x, axis=0))


@triton.jit
def best_kernel(best, best_ids, tokens, blocks, BLOCKS: tl.constexpr):
    """The best of one row's column blocks, the first among equals. Grid: ``(R,)``."""
    row, lanes = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCKS)
    values = tl.load(best + row * blocks + lanes, mask=lanes < blocks, other=-float("inf"))
    winner = tl.argmax(values, axis=0)
    tl.store(tokens + row, tl.load(best_ids + row * blocks + winner).to(tl.int64))
