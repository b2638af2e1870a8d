"""BlockPool: which blocks are free, who holds the others, and when a freed one may be used again.

Owns: block ids, reference counts, fences, the order in which cached blocks are given up. Does not own: the tensors
behind the ids (storage.py), the order of a sequence's blocks (block_table.py), what a cached block holds
(prefix_cache.py).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

NULL_BLOCK = 0


class PoolIntegrityError(AssertionError):
    """The pool's books do not add up: a defect of this program, never of a request."""


class BlockPool:
    """Blocks 1 .. num_blocks-1; block 0 is the null block that padding points at and is never handed out.

    A block is in one of four states::

        free    nobody wants it                        handed out first, the last freed before all others
        parked  freed, but a step that may still touch it has not finished
        cached  nobody holds it, but its content can be found again; given up when nothing is free, least recently
                used first. A sequence frees its blocks tail first, so a prefix outlives what came after it.
                It may be found at once, but given up only when its fence has completed, too
        held    reference count > 0
    """

    def __init__(self, num_blocks: int, on_evict: Callable[[int], None] = lambda block: None) -> None:
        """on_evict(block) is called when a cached block is given up, before it is handed out."""
        if num_blocks < 2:
            raise ValueError(f"a pool needs at least 2 blocks (one is the null block), got {num_blocks}")
        self.num_blocks = num_blocks
        self.on_evict = on_evict
        self._free = list(range(num_blocks - 1, NULL_BLOCK, -1))
        self._references = [0] * num_blocks
        self._findable = bytearray(num_blocks)
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._young: OrderedDict[int, int] = OrderedDict()  # cached blocks behind a fence -> that fence
        self._parked: deque[tuple[int, int]] = deque()
        self._completed_fence = 0

    @property
    def num_usable(self) -> int:
        """Blocks that sequences can hold at all."""
        return self.num_blocks - 1

    @property
    def num_free(self) -> int:
        """Free blocks."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks that nobody holds and whose content can be found."""
        return len(self._cached)

    @property
    def num_parked(self) -> int:
        """Blocks freed behind a fence that has not completed."""
        return len(self._parked)

    @property
    def num_held(self) -> int:
        """Blocks with at least one reference."""
        return self.num_usable - len(self._free) - len(self._cached) - len(self._parked)

    @property
    def num_available(self) -> int:
        """Blocks that can be handed out now: the free ones, and the cached ones whose fence has completed."""
        return len(self._free) + len(self._cached) - len(self._young)

    def references(self, block: int) -> int:
        """How many tables hold the block."""
        return self._references[block]

    def allocate(self, count: int) -> list[int]:
        """Hand out blocks with one reference each. Raises MemoryError, changing nothing, if too few are available."""
        if count > self.num_available:
            raise MemoryError(f"{count} blocks asked for, {self.num_available} available")
        taken = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        for block in taken:
            self._references[block] = 1
        return taken

    def _evict(self) -> int:
        block, _ = self._cached.popitem(last=False)
        self._findable[block] = 0
        self.on_evict(block)
        return block

    def share(self, block: int) -> None:
        """Take one more reference of a block that is held or cached. Raises PoolIntegrityError if it is neither."""
        if self._references[block] == 0 and block not in self._cached:
            raise PoolIntegrityError(f"block {block} shared, but it is neither held nor cached")
        self._cached.pop(block, None)
        self._young.pop(block, None)
        self._references[block] += 1

    def publish(self, block: int) -> None:
        """The content of a held block can be found from now on, so it is kept when it is freed."""
        if self._references[block] == 0:
            raise PoolIntegrityError(f"block {block} published, but nobody holds it")
        self._findable[block] = 1

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
        if self._findable[block]:
            self._cached[block] = None
            if fence > self._completed_fence:
                self._young[block] = fence
        elif fence > self._completed_fence:
            self._parked.append((fence, block))
        else:
            self._free.append(block)

    def complete(self, fence: int) -> None:
        """Step ``fence`` and all before it have finished on the device: what is parked behind them becomes usable."""
        self._completed_fence = max(self._completed_fence, fence)
        while self._parked and self._parked[0][0] <= self._completed_fence:
            self._free.append(self._parked.popleft()[1])
        while self._young and next(iter(self._young.values())) <= self._completed_fence:
            self._young.popitem(last=False)

    def check_empty(self) -> None:
        """Raise PoolIntegrityError if any block is held or parked. Fast enough while serving."""
        if self.num_available != self.num_usable or any(self._references):
            raise PoolIntegrityError(f"nothing runs, but {self.num_usable - self.num_available} blocks are missing")

    def check_integrity(self, tables: Iterable[list[int]]) -> None:
        """Raise PoolIntegrityError unless each block is in one state and references equal table entries."""
        counted = [0] * self.num_blocks
        for table in tables:
            for block in table:
                counted[block] += 1
        idle = [*self._free, *self._cached, *(block for _, block in self._parked)]
        if counted[NULL_BLOCK] or NULL_BLOCK in idle:
            raise PoolIntegrityError("the null block is in use")
        if len(set(idle)) != len(idle):
            raise PoolIntegrityError("a block is free twice")
        if counted != self._references:
            wrong = [b for b in range(self.num_blocks) if counted[b] != self._references[b]]
            raise PoolIntegrityError(f"blocks {wrong[:8]}: references differ from table entries")
        if any(self._references[block] for block in idle):
            raise PoolIntegrityError("a held block is free")
        if any(self._findable[block] for block in self._free) or not all(self._findable[b] for b in self._cached):
            raise PoolIntegrityError("findable blocks and cached blocks differ")
        if len(idle) + sum(1 for n in self._references if n) != self.num_usable:
            raise PoolIntegrityError("free + parked + cached + held differs from the total")
