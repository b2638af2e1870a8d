"""The pool's books, under any sequence of operations."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from backend.kv.block_pool import BlockPool, PoolIntegrityError

NUM_BLOCKS = 9


class PoolMachine(RuleBasedStateMachine):
    """Random allocation, release and completion beside a model that only counts."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS)
        self.tables: list[list[int]] = []
        self.fence = 0
        self.completed = 0
        self.freed_behind: dict[int, int] = {}

    @rule(count=st.integers(0, 5))
    def allocate(self, count: int) -> None:
        free = self.pool.num_free
        if count > free:
            with pytest.raises(MemoryError):
                self.pool.allocate(count)
            assert self.pool.num_free == free
            return
        blocks = self.pool.allocate(count)
        assert len(set(blocks)) == count
        assert all(0 < b < NUM_BLOCKS for b in blocks)
        assert all(self.freed_behind.get(b, 0) <= self.completed for b in blocks), "reused before its fence"
        self.tables.append(blocks)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        table = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        self.pool.free(table, self.fence)
        self.freed_behind |= dict.fromkeys(table, self.fence)

    @rule()
    def launch(self) -> None:
        self.fence += 1

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        self.completed = data.draw(st.integers(self.completed, self.fence))
        self.pool.complete(self.completed)

    @invariant()
    def books_add_up(self) -> None:
        self.pool.check_integrity(self.tables)
        held = sum(map(len, self.tables))
        assert self.pool.num_held == held
        assert self.pool.num_free + self.pool.num_parked + held == NUM_BLOCKS - 1


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_double_free_is_refused() -> None:
    pool = BlockPool(4)
    block = pool.allocate(1)
    pool.free(block, fence=0)
    with pytest.raises(PoolIntegrityError, match="nobody holds it"):
        pool.free(block, fence=0)


def test_the_null_block_is_never_handed_out_and_never_freed() -> None:
    pool = BlockPool(4)
    assert sorted(pool.allocate(3)) == [1, 2, 3]
    with pytest.raises(PoolIntegrityError):
        pool.free([0], fence=0)


@pytest.mark.parametrize("damage", ["twice", "lost", "leaked", "referenced"])
def test_the_integrity_check_fires(damage: str) -> None:
    pool = BlockPool(6)
    table = pool.allocate(2)
    pool.check_integrity([table])
    if damage == "twice":
        pool._free.append(pool._free[0])
    elif damage == "lost":
        pool._free.pop()
    elif damage == "leaked":
        table = table[:1]
    else:
        pool._references[table[0]] += 1
    with pytest.raises(PoolIntegrityError):
        pool.check_integrity([table])
