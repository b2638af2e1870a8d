"""The blocks of one sequence: how many it needs, how it grows, how it gives them back."""

from __future__ import annotations

from backend.kv.block_pool import BlockPool
from backend.request import Sequence


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that ``num_tokens`` token slots take."""
    return -(-num_tokens // block_size)


class BlockTables:
    """Grows and releases the block lists of sequences, all from one pool."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self.pool = pool
        self.block_size = block_size

    def missing(self, sequence: Sequence, num_tokens: int) -> int:
        """Blocks the sequence lacks to hold ``num_tokens`` tokens."""
        return max(0, blocks_for(num_tokens, self.block_size) - len(sequence.blocks))

    def grow(self, sequence: Sequence, num_tokens: int) -> None:
        """Make room for ``num_tokens`` tokens. Raises MemoryError, changing nothing, if the pool cannot."""
        missing = self.missing(sequence, num_tokens)
        if missing:
            sequence.blocks.extend(self.pool.allocate(missing))

    def release(self, sequence: Sequence, fence: int) -> None:
        """Give all blocks back, tail first; they are reusable after step ``fence``."""
        self.pool.free(reversed(sequence.blocks), fence)
        sequence.blocks.clear()
