"""The blocks of one sequence: how many it needs, how it grows, shares and gives them back."""

from __future__ import annotations

from collections.abc import Iterable

from backend.kv.block_pool import BlockPool
from backend.request import Sequence


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that ``num_tokens`` token slots take."""
    return -(-num_tokens // block_size)


class Release:
    """Blocks, beside those ``kept``, that become available if sequences release theirs; a sequence costs its blocks.

    A shared block counts once all who hold it let go.
    """

    def __init__(self, pool: BlockPool, kept: frozenset[int]) -> None:
        self.blocks = 0
        self._references, self._kept = pool.references, kept
        self._counts: dict[int, int] = {}

    def add(self, sequence: Sequence, reserved: int) -> None:
        """One more victim. reserved: blocks beyond those it holds that it has reserved."""
        self.blocks += reserved
        counts, references, kept = self._counts, self._references, self._kept
        for block in sequence.held:
            counts[block] = count = counts.get(block, 0) + 1
            if count == references(block) and block not in kept:
                self.blocks += 1

    def remove(self, sequence: Sequence, reserved: int) -> None:
        """Spare a victim that was added."""
        self.blocks -= reserved
        counts, references, kept = self._counts, self._references, self._kept
        for block in sequence.held:
            count = counts[block]
            counts[block] = count - 1
            if count == references(block) and block not in kept:
                self.blocks -= 1


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
            sequence.num_new_blocks += missing
            self._set_capacity(sequence)

    def share(self, sequence: Sequence, blocks: Iterable[int]) -> None:
        """Let a sequence without blocks begin with blocks that others hold or that are cached."""
        for block in blocks:
            self.pool.share(block)
            sequence.blocks.append(block)
            sequence.num_reused_blocks += 1
        self._set_capacity(sequence)

    def _set_capacity(self, sequence: Sequence) -> None:
        sequence.capacity = min(len(sequence.blocks) * self.block_size, sequence.limit)

    def release_of(self, kept: frozenset[int] = frozenset()) -> Release:
        """A count of what victims would make available, to be added to one by one."""
        return Release(self.pool, kept)

    def release(self, sequence: Sequence, fence: int) -> None:
        """Give all blocks back, tail first; they are reusable after step ``fence``."""
        self.pool.free(reversed(sequence.blocks), fence)
        sequence.blocks.clear()
        sequence.capacity = 0
