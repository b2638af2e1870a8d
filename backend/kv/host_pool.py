"""HostPool: slots in host memory for the blocks of swapped-out sequences. Ids only; the tensor is the executor's."""

from __future__ import annotations

from collections import deque

from backend.kv.block_pool import PoolIntegrityError


class HostPool:
    """``num_slots`` slots, each as large as one block. A freed slot is reusable once its fence has completed."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = list(range(num_slots - 1, -1, -1))
        self._held: set[int] = set()
        self._parked: deque[tuple[int, int]] = deque()
        self._completed_fence = 0

    @property
    def num_free(self) -> int:
        """Slots that can be handed out now."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Hand out slots. Raises MemoryError, changing nothing, if too few are free."""
        if count > len(self._free):
            raise MemoryError(f"{count} host slots asked for, {len(self._free)} free")
        taken = [self._free.pop() for _ in range(count)]
        self._held.update(taken)
        return taken

    def free(self, slots: list[int], fence: int) -> None:
        """Give slots back, reusable after step ``fence`` has read them."""
        for slot in slots:
            if slot not in self._held:
                raise PoolIntegrityError(f"host slot {slot} freed, but nobody holds it")
            self._held.remove(slot)
            if fence > self._completed_fence:
                self._parked.append((fence, slot))
            else:
                self._free.append(slot)

    def complete(self, fence: int) -> None:
        """Step ``fence`` and all before it have finished."""
        self._completed_fence = max(self._completed_fence, fence)
        while self._parked and self._parked[0][0] <= self._completed_fence:
            self._free.append(self._parked.popleft()[1])

    def check_integrity(self, held: list[int]) -> None:
        """Raise PoolIntegrityError unless exactly these slots are held and every slot is somewhere once."""
        everywhere = sorted([*self._free, *self._held, *(slot for _, slot in self._parked)])
        if sorted(held) != sorted(self._held) or everywhere != list(range(self.num_slots)):
            raise PoolIntegrityError("host slots are lost, doubled or held by nobody")
