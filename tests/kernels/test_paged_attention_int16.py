"""Chunks in whole numbers, as int8 weights go with them: near the exact result, and the same whatever the chunk."""

import dataclasses

import pytest
import torch

from kernels.table import Operations, PagedAttention, cpu_operations
from tests.kernels.test_paged_attention import Case, make_case, naive


@pytest.fixture
def attention(of_precision: dict[str, Operations]) -> PagedAttention:
    return of_precision["int8"].paged_attention


def check(attention: PagedAttention, case: Case, expected: torch.Tensor | None = None, **options: float | None) -> None:
    """Within what roundings of 12 and 13 bits do to a score (some 20 here) and to a mean of values (some 3)."""
    found = case.run(attention, **options).double()
    want = naive(case, **options) if expected is None else expected.double()
    torch.testing.assert_close(found, want, rtol=0, atol=2e-2)
    assert (found - want).square().mean().sqrt() < 1e-3


@pytest.mark.parametrize("group", [1, 3, 4])
@pytest.mark.parametrize("size", [7, 8, 64, 80, 96, 128, 256])
def test_head_sizes_and_groups(attention: PagedAttention, size: int, group: int) -> None:
    case = make_case([(1, 33), (3, 17), (5, 5), (20, 140)], size=size, block_size=16, group=group)
    check(attention, case, scale=size**-0.5)


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("window", [1, 2, 5, 16, 100, None])
def test_windows_and_caps(attention: PagedAttention, window: int | None, softcap: float | None) -> None:
    check(attention, make_case([(7, 19), (1, 13), (5, 5), (90, 150)]), window=window, softcap=softcap)


def test_a_mixed_batch_of_long_sequences(attention: PagedAttention) -> None:
    case = make_case([(1, 1328), (5, 18), (129, 463)], kv_heads=3, group=3, size=64, block_size=16)
    for window in (None, 700):
        check(attention, case, case.run(window=window), window=window)


def test_keys_that_weigh_little_one_by_one_and_much_together_are_not_lost(attention: PagedAttention) -> None:
    # The first key outweighs each of the other 2,047 by 20,000: rounded against it, they would all come to nothing.
    case = make_case([(2, 2048)], kv_heads=1, group=1, size=16, block_size=16)
    case.q.zero_()
    case.q[:, :, 0] = 1.0
    pool = case.pool.clone()
    for position in range(2048):
        block, offset = int(case.tables[0, position // 16]), position % 16
        pool[block, 1, 0, 0, offset, 0] = 9.9 if position == 0 else 0.0
        pool[block, 1, 1, 0, offset] = 0.0 if position == 0 else 1.0
    found = dataclasses.replace(case, pool=pool).run(attention, scale=1.0)
    others = 2047 / (2047 + torch.tensor(9.9).exp())
    torch.testing.assert_close(found[1], others.expand(1, 16), rtol=1e-3, atol=0)


def test_a_chunks_rows_are_the_same_bit_for_bit_however_the_prompt_is_cut() -> None:
    attention = cpu_operations(2, "int8", batch_invariant=True).paged_attention
    case = make_case([(150, 150)], kv_heads=2, group=3, size=64, block_size=16)
    whole = case.run(attention)
    for rows, length in [(1, 1), (1, 64), (1, 65), (1, 150), (7, 130), (64, 128), (100, 100)]:
        part = dataclasses.replace(
            case,
            q=case.q[length - rows : length],
            query_start=torch.tensor([0, rows], dtype=torch.int32),
            kv_lengths=torch.tensor([length], dtype=torch.int32),
        )
        assert torch.equal(part.run(attention), whole[length - rows : length])
