"""The pool's memory: its layout, its size, and the one allocation that holds it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.huge_pages import ask_for_huge_pages
from kernels.int16_kv.reference import slots, step_rows

MIN_BLOCKS = 2  # the null block and one that can be used
_KNOBS = "max_tokens_in_paged_kv_cache or kv_cache_free_gpu_mem_fraction"


class PoolTooLarge(MemoryError):
    """The device has no room for a pool of this size; the message says how much it needs and what to lower."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KVLayout:
    """How one block is laid out. Blocks come first in the pool, so that one block is one contiguous piece.

    ``[num_layers, 2 (key, value), num_kv_heads, block_size, head_dim]``; of int16 with rows more, for what its numbers
    are worth (``kernels.int16_kv.reference``).
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int = 16  # tokens
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        for name in ("num_layers", "num_kv_heads", "head_dim", "block_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: expected at least 1")

    @property
    def block_shape(self) -> tuple[int, int, int, int, int]:
        """The pool's shape without its first dimension."""
        more = step_rows(self.block_size, self.head_dim) if self.dtype == torch.int16 else 0
        return (self.num_layers, 2, self.num_kv_heads, self.block_size + more, self.head_dim)

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block, all layers."""
        return math.prod(self.block_shape) * self.dtype.itemsize


def memory_for(layout: KVLayout, num_blocks: int) -> int:
    """Bytes of a pool of ``num_blocks`` blocks, the null block among them."""
    return num_blocks * layout.bytes_per_block


def blocks_for_tokens(layout: KVLayout, num_tokens: int) -> int:
    """Blocks of a pool that holds ``num_tokens`` tokens, the null block added."""
    return 1 + -(-num_tokens // layout.block_size)


def blocks_that_fit(layout: KVLayout, num_bytes: int) -> int:
    """Blocks of the largest pool within ``num_bytes``, the null block among them; 0 where not even one fits."""
    return max(num_bytes, 0) // layout.bytes_per_block


def token_slots(blocks: Tensor, layout: KVLayout) -> Tensor:
    """What operations take as the pool, ``[num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim]``: a view."""
    return slots(blocks, layout.block_size)


def touch(blocks: Tensor, num_bytes: int) -> None:
    """Zero the first blocks, so many bytes of them or all, which gives them memory now rather than when first used."""
    blocks[: num_bytes // blocks[0].nbytes].zero_()


def allocate(layout: KVLayout, num_blocks: int, device: torch.device | str = "cpu") -> Tensor:
    """The pool, ``[num_blocks, *layout.block_shape]``.

    Block 0, the null block, is zero; the others hold whatever the memory held, and nothing may read a slot before
    it is written.

    Raises:
        ValueError: fewer than ``MIN_BLOCKS`` blocks.
        PoolTooLarge: the allocator refused. A CPU that overcommits its memory refuses late or never, so who
            chooses ``num_blocks`` must look at the memory that is free.
    """
    needed = memory_for(layout, num_blocks)
    if num_blocks < MIN_BLOCKS:
        raise ValueError(
            f"a pool of {num_blocks} blocks of {layout.bytes_per_block} bytes is too small: "
            f"expected at least {MIN_BLOCKS} (one is the null block); raise {_KNOBS}"
        )
    try:
        pool = torch.empty((num_blocks, *layout.block_shape), dtype=layout.dtype, device=device)
    except (RuntimeError, MemoryError) as error:
        raise PoolTooLarge(
            f"the KV pool needs {needed} bytes ({needed / 2**30:.2f} GiB) on {device}: {num_blocks} blocks "
            f"of {layout.bytes_per_block} bytes; lower {_KNOBS}"
        ) from error
    ask_for_huge_pages(pool)
    pool[0].zero_()
    return pool
