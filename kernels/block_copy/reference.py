"""Moving whole blocks in plain torch. A pool is anything whose first dimension counts blocks: numbers or scales."""

from torch import Tensor


def copy_blocks(pool: Tensor, sources: Tensor, destinations: Tensor) -> None:
    """``pool[destinations[i]] = pool[sources[i]]``, in place.

    Args:
        pool: ``[num_blocks, ...]``, contiguous; changed.
        sources, destinations: int64 ``[N]``. Destinations are distinct, and none of them is a source.
    """
    pool[destinations] = pool[sources]


def gather_blocks(pool: Tensor, blocks: Tensor, staging: Tensor) -> None:
    """``staging[i] = pool[blocks[i]]``, in place.

    Args:
        pool: ``[num_blocks, ...]``, contiguous.
        blocks: int64 ``[N]``.
        staging: ``[at least N, ...]`` of the same blocks, contiguous; its first N are changed.
    """
    staging[: len(blocks)] = pool[blocks]


def scatter_blocks(staging: Tensor, blocks: Tensor, pool: Tensor) -> None:
    """``pool[blocks[i]] = staging[i]``, in place; arguments as for ``gather_blocks``, blocks distinct."""
    pool[blocks] = staging[: len(blocks)]
