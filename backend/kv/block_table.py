"""The blocks of one sequence: how many it needs, how it grows, shares and gives them back."""

from __future__ import annotations

from collections.abc import Iterable

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
            self._set_capacity(sequence)

    def share(self, sequence: Sequence, blocks: Iterable[int]) -> None:
        """Let a sequence without blocks begin with blocks that others hold or that are cached."""
        for block in blocks:
            self.pool.share(block)
            sequence.blocks.append(block)
        self._set_capacity(sequence)

    def _set_capacity(self, sequence: Sequence) -> None:
        sequence.capacity = min(len(sequence.blocks) * self.block_size, sequence.limit)

    def would_free(self, sequences: Iterable[Sequence], kept: frozenset[int] = frozenset()) -> int:
        """Blocks, beside those ``kept``, that become available if all these sequences release theirs.

        A shared block counts once all who hold it let go.
        """
        counts: dict[int, int] = {}
        for sequence in sequences:
            for block in sequence.blocks:
                counts[block] = counts.get(block, 0) + 1
        references = self.pool.references
        return sum(1 for block, count in counts.items() if count == references(block) and block not in kept)

    def release(self, sequence: Sequence, fence: int) -> None:
        """Give all blocks back, tail first; they are reusable after step ``fence``."""
        self.pool.free(reversed(sequence.blocks), fence)
        sequence.blocks.clear()
        sequence.capacity = 0
