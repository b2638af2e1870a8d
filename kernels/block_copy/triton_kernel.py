"""Moving whole blocks in the Triton language: one contiguous piece per block, in words of 8 bytes.

A staging buffer on the device goes to pinned host memory, or comes from it, in one copy by the copy engine, which
leaves the multiprocessors to the model. Only the gathering and scattering is done here.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Schedule, cdiv, power_of_2

WORDS = 2048  # of 8 bytes, moved by one program


def copy_blocks(pool: Tensor, sources: Tensor, destinations: Tensor) -> None:
    """See ``reference.copy_blocks``."""
    _move(pool, pool, sources, destinations)


def gather_blocks(pool: Tensor, blocks: Tensor, staging: Tensor) -> None:
    """See ``reference.gather_blocks``."""
    _move(pool, staging, blocks, None)


def scatter_blocks(staging: Tensor, blocks: Tensor, pool: Tensor) -> None:
    """See ``reference.scatter_blocks``."""
    _move(staging, pool, None, blocks)


def _move(source: Tensor, target: Tensor, sources: Tensor | None, targets: Tensor | None) -> None:
    ids = targets if sources is None else sources
    if ids is None or len(ids) == 0:
        return
    source, target = _words(source), _words(target)
    size = source.shape[1]
    words = min(WORDS, power_of_2(size))
    move_blocks_kernel[(len(ids), cdiv(size, words))](
        source, target, ids if sources is None else sources, ids if targets is None else targets, size,
        FROM_TABLE=sources is not None, TO_TABLE=targets is not None, WORDS=words, **Schedule(4).options(),
    )  # fmt: skip


def _words(pool: Tensor) -> Tensor:
    """The pool as ``[num_blocks, words]``; words of one byte where blocks are no whole number of longer ones."""
    flat = pool.view(pool.shape[0], -1)
    is_whole = flat.shape[1] * flat.element_size() % 8 == 0
    return flat.view(torch.int64 if is_whole else torch.uint8)


@triton.jit
def move_blocks_kernel(
    source, target, sources, targets, size, FROM_TABLE: tl.constexpr, TO_TABLE: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """A piece of one block. Grid: ``(N, pieces)``."""
    index = tl.program_id(0).to(tl.int64)
    words = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    start = tl.load(sources + index) if FROM_TABLE else index
    end = tl.load(targets + index) if TO_TABLE else index
    piece = tl.load(source + start * size + words, mask=words < size)
    tl.store(target + end * size + words, piece, mask=words < size)
