"""Blocks copied between pool and host: the exact bits, in the order out, in, within."""

import pytest
import torch

from backend.executor.block_copier import BlockCopier
from backend.scheduler.plan import BlockCopies

BLOCK = (2, 2, 1, 4, 3)
"""Layers, key and value, heads, slots, width."""


def numbered(count: int, start: int = 0) -> torch.Tensor:
    """Blocks in which every number is another one."""
    size = count * torch.Size(BLOCK).numel()
    return torch.arange(start, start + size, dtype=torch.float32).reshape(count, *BLOCK)


def copies(out: list = [], into: list = [], within: list = []) -> BlockCopies:  # noqa: B006 - never changed
    return BlockCopies(out, into, within, [])


def test_a_block_copied_out_and_back_in_elsewhere_has_its_exact_bits_and_nothing_else_changes() -> None:
    bits = torch.randint(-(2**31), 2**31 - 1, (5, *BLOCK), dtype=torch.int32)  # NaN, infinities and -0 among them
    pool = bits.view(torch.float32).clone()
    host = torch.zeros((3, *BLOCK))
    copier = BlockCopier(pool, host)
    copier.run(copies(out=[(1, 2), (4, 0)]))
    assert torch.equal(host.view(torch.int32)[[2, 0]], bits[[1, 4]])
    assert not host[1].any()
    pool[1:] = -1.0
    copier.run(copies(into=[(0, 3), (2, 2)]))
    assert torch.equal(pool.view(torch.int32)[[3, 2]], bits[[4, 1]])
    assert (pool[[1, 4]] == -1.0).all()
    assert torch.equal(pool.view(torch.int32)[0], bits[0])


def test_a_block_copied_out_may_be_overwritten_by_the_same_step() -> None:
    pool, host = numbered(3), numbered(2, start=10_000)
    before, waiting = pool[1].clone(), host[1].clone()
    BlockCopier(pool, host).run(copies(out=[(1, 0)], into=[(1, 1)]))
    assert torch.equal(host[0], before)
    assert torch.equal(pool[1], waiting)


def test_the_order_is_out_then_in_then_within() -> None:
    pool, host = numbered(5), numbered(1, start=10_000)
    first = pool[1].clone()
    # Each copy reads what the one before it wrote; in any other order another value arrives.
    BlockCopier(pool, host).run(copies(out=[(1, 0)], into=[(0, 2)], within=[(2, 3)]))
    for holder in (host[0], pool[2], pool[3]):
        assert torch.equal(holder, first)


def test_one_block_can_be_copied_to_several() -> None:
    pool = numbered(5)
    BlockCopier(pool, pool[:0]).run(copies(within=[(1, 2), (1, 4)]))
    assert torch.equal(pool[2], pool[1])
    assert torch.equal(pool[4], pool[1])


def test_nothing_to_copy_changes_nothing() -> None:
    pool, host = numbered(3), numbered(2)
    BlockCopier(pool, host).run(copies())
    assert torch.equal(pool, numbered(3))
    assert torch.equal(host, numbered(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_kind_of_number_does_not_matter(dtype: torch.dtype) -> None:
    pool, host = numbered(3).to(dtype), numbered(2).to(dtype)
    first = pool[1].clone()
    BlockCopier(pool, host).run(copies(out=[(1, 1)]))
    assert torch.equal(host[1], first)


def test_the_measured_copy_takes_time_and_none_without_host_space() -> None:
    assert BlockCopier(numbered(4), numbered(2)).seconds_per_block() > 0.0
    assert BlockCopier(numbered(4), numbered(4)[:0]).seconds_per_block() == 0.0


def test_measuring_leaves_the_pool_as_it_was() -> None:
    pool = numbered(4)
    BlockCopier(pool, numbered(2)).seconds_per_block()
    assert torch.equal(pool, numbered(4))
