"""Slots in host memory: handed out once, back after their fence, and books that notice damage."""

import pytest

from backend.kv.block_pool import PoolIntegrityError
from backend.kv.host_pool import HostPool


def test_each_slot_is_handed_out_once_and_too_many_are_refused_without_a_change() -> None:
    host = HostPool(4)
    taken = host.allocate(3)
    assert len(set(taken)) == 3
    with pytest.raises(MemoryError, match="2 host slots asked for, 1 free"):
        host.allocate(2)
    assert host.num_free == 1
    assert sorted([*taken, *host.allocate(1)]) == [0, 1, 2, 3]


def test_a_freed_slot_is_reusable_once_its_step_has_finished_and_not_before() -> None:
    host = HostPool(2)
    slots = host.allocate(2)
    host.free(slots[:1], fence=3)
    host.free(slots[1:], fence=4)
    assert host.num_free == 0
    host.complete(2)
    assert host.num_free == 0
    host.complete(3)
    assert host.allocate(1) == slots[:1]
    host.complete(4)
    assert host.num_free == 1


def test_a_slot_freed_twice_is_refused() -> None:
    host = HostPool(2)
    slots = host.allocate(1)
    host.free(slots, fence=1)
    with pytest.raises(PoolIntegrityError, match="nobody holds it"):
        host.free(slots, fence=1)


def test_no_host_memory_is_a_pool_without_slots() -> None:
    host = HostPool(0)
    assert host.allocate(0) == []
    with pytest.raises(MemoryError):
        host.allocate(1)
    host.check_integrity([])


@pytest.mark.parametrize("damage", ["lost", "twice", "unknown holder", "forgotten"])
def test_the_integrity_check_fires(damage: str) -> None:
    host = HostPool(5)
    held = host.allocate(3)
    host.free([held.pop()], fence=1)
    host.check_integrity(held)
    if damage == "lost":
        host._free.pop()
    elif damage == "twice":
        host._free.append(held[0])
    elif damage == "unknown holder":
        held = held[:1]
    else:
        host._parked.clear()
    with pytest.raises(PoolIntegrityError):
        host.check_integrity(held)
