"""BlockPool: which blocks are free, who holds the others, and when a freed one may be used again.

Owns: block ids, reference counts, fences. Does not own: the tensors behind the ids (storage.py), or the order of a
sequence's blocks (block_table.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

NULL_BLOCK = 0


class PoolIntegrityError(AssertionError):
    """The pool's books do not add up: a defect of this program, never of a request."""


class BlockPool:
    """Blocks 1 .. num_blocks-1; block 0 is the null block that padding points at and is never handed out.

    A block is free, parked (freed, but a step that may still touch it has not finished) or held (reference count > 0).
    Blocks freed last are handed out first, so a pool larger than its use touches little memory.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 2:
            raise ValueError(f"a pool needs at least 2 blocks (one is the null block), got {num_blocks}")
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, NULL_BLOCK, -1))
        self._references = [0] * num_blocks
        self._parked: deque[tuple[int, int]] = deque()
        self._completed_fence = 0

    @property
    def num_usable(self) -> int:
        """Blocks that sequences can hold at all."""
        return self.num_blocks - 1

    @property
    def num_free(self) -> int:
        """Blocks that can be handed out now."""
        return len(self._free)

    @property
    def num_parked(self) -> int:
        """Blocks freed behind a fence that has not completed."""
        return len(self._parked)

    @property
    def num_held(self) -> int:
        """Blocks with at least one reference."""
        return self.num_usable - self.num_free - self.num_parked

    def allocate(self, count: int) -> list[int]:
        """Hand out blocks with one reference each. Raises MemoryError, changing nothing, if too few are free."""
        if count > len(self._free):
            raise MemoryError(f"{count} blocks asked for, {len(self._free)} free")
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self._references[block] = 1
        return taken

    def free(self, blocks: Iterable[int], fence: int) -> None:
        """Drop one reference of each block; those at zero are reusable once step ``fence`` has completed.

        Raises PoolIntegrityError on a block that nobody holds: a double free is refused, not accepted.
        """
        for block in blocks:
            if block == NULL_BLOCK or self._references[block] <= 0:
                raise PoolIntegrityError(f"block {block} freed, but nobody holds it")
            self._references[block] -= 1
            if self._references[block] == 0:
                self._release(block, fence)

    def _release(self, block: int, fence: int) -> None:
        if fence <= self._completed_fence:
            self._free.append(block)
        else:
            self._parked.append((fence, block))

    def complete(self, fence: int) -> None:
        """Step ``fence`` and all before it have finished on the device: blocks parked behind them become free."""
        self._completed_fence = max(self._completed_fence, fence)
        while self._parked and self._parked[0][0] <= self._completed_fence:
            self._free.append(self._parked.popleft()[1])

    def check_empty(self) -> None:
        """Raise PoolIntegrityError unless every block is free and none is held. Fast enough while serving."""
        if self.num_free != self.num_usable or any(self._references):
            raise PoolIntegrityError(f"nothing runs, but {self.num_usable - self.num_free} blocks are not free")

    def check_integrity(self, tables: Iterable[list[int]]) -> None:
        """Raise PoolIntegrityError unless free + parked + held = total, no block twice, references = table entries."""
        counted = [0] * self.num_blocks
        for table in tables:
            for block in table:
                counted[block] += 1
        idle = self._free + [block for _, block in self._parked]
        if counted[NULL_BLOCK] or NULL_BLOCK in idle:
            raise PoolIntegrityError("the null block is in use")
        if len(set(idle)) != len(idle):
            raise PoolIntegrityError("a block is free twice")
        if counted != self._references:
            wrong = [b for b in range(self.num_blocks) if counted[b] != self._references[b]]
            raise PoolIntegrityError(f"blocks {wrong[:8]}: references differ from table entries")
        if any(self._references[block] for block in idle):
            raise PoolIntegrityError("a held block is free")
        if len(idle) + sum(1 for n in self._references if n) != self.num_usable:
            raise PoolIntegrityError("free + parked + held differs from the total")
