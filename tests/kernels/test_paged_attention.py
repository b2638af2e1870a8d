import dataclasses
import math
import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.operations import Operations, PagedAttention
from kernels.paged_attention.reference import paged_attention

Shape = tuple[int, int]  # (query rows, keys) of one sequence


@dataclass(frozen=True)
class Case:
    """A batch in a pool whose every other slot is NaN, and what each sequence's keys and values are."""

    q: Tensor
    pool: Tensor
    layer: int
    tables: Tensor
    query_start: Tensor
    kv_lengths: Tensor
    keys: list[Tensor]  # per sequence [length, Hkv, D]
    values: list[Tensor]

    def run(
        self,
        attention: PagedAttention = paged_attention,
        scale: float = 0.3,
        window: int | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        return attention(
            self.q,
            self.pool,
            self.layer,
            self.tables,
            self.query_start,
            self.kv_lengths,
            scale=scale,
            window=window,
            softcap=softcap,
        )


def make_case(
    shapes: list[Shape], *, kv_heads: int = 2, group: int = 2, size: int = 8, block_size: int = 4, seed: int = 0
) -> Case:
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-length // block_size) for _, length in shapes]
    ids = list(range(1, sum(counts) + 1))
    random.Random(seed).shuffle(ids)
    layer, num_layers = 1, 3
    pool = torch.full((len(ids) + 1, num_layers, 2, kv_heads, block_size, size), torch.nan)
    tables = torch.zeros(len(shapes), max(counts, default=0) + 2, dtype=torch.int32)
    keys, values = [], []
    for s, (_, length) in enumerate(shapes):
        blocks = [ids.pop() for _ in range(counts[s])]
        tables[s, : counts[s]] = torch.tensor(blocks, dtype=torch.int32)
        k, v = torch.randn(2, length, kv_heads, size, generator=generator)
        for position in range(length):
            block, offset = blocks[position // block_size], position % block_size
            pool[block, layer, 0, :, offset] = k[position]
            pool[block, layer, 1, :, offset] = v[position]
        keys.append(k)
        values.append(v)
    rows = [n for n, _ in shapes]
    return Case(
        q=torch.randn(sum(rows), kv_heads * group, size, generator=generator) * 2,
        pool=pool,
        layer=layer,
        tables=tables,
        query_start=torch.tensor([0, *torch.tensor(rows).cumsum(0).tolist()], dtype=torch.int32),
        kv_lengths=torch.tensor([length for _, length in shapes], dtype=torch.int32),
        keys=keys,
        values=values,
    )


def naive(case: Case, scale: float = 0.3, window: int | None = None, softcap: float | None = None) -> Tensor:
    """One query row, one head, one key at a time, in float64."""
    output = torch.zeros(case.q.shape, dtype=torch.float64)
    group = case.q.shape[1] // case.pool.shape[3]
    starts = case.query_start.tolist()
    for s, length in enumerate(case.kv_lengths.tolist()):
        for row in range(starts[s], starts[s + 1]):
            position = length - (starts[s + 1] - row)
            first = 0 if window is None else max(0, position - window + 1)
            for head in range(case.q.shape[1]):
                query = case.q[row, head].double()
                scores = []
                for j in range(first, position + 1):
                    score = float(query.dot(case.keys[s][j, head // group].double())) * scale
                    scores.append(score if softcap is None else softcap * math.tanh(score / softcap))
                top = max(scores)
                weights = [math.exp(score - top) for score in scores]
                for weight, j in zip(weights, range(first, position + 1), strict=True):
                    output[row, head] += weight / sum(weights) * case.values[s][j, head // group].double()
    return output


@pytest.fixture(scope="session")
def attention(operations: Operations) -> PagedAttention:
    return operations.paged_attention


def check(attention: PagedAttention, case: Case, **options: float | None) -> None:
    found = case.run(attention, **options)
    torch.testing.assert_close(found.double(), naive(case, **options), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("group", [1, 3, 4, 7, 8])
@pytest.mark.parametrize("size", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("block_size", [16, 32])
def test_head_sizes_groups_and_block_sizes(attention: PagedAttention, size: int, block_size: int, group: int) -> None:
    case = make_case([(1, 33), (3, 17), (1, 5)], size=size, block_size=block_size, group=group)
    check(attention, case, scale=size**-0.5)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 32, 33])
def test_lengths_around_block_edges(attention: PagedAttention, length: int) -> None:
    case = make_case([(1, length), (length, length), (-(-length // 2), length)], block_size=16)
    check(attention, case)


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("window", [1, 2, 4, 5, 16, 100, None])
def test_windows_and_caps(attention: PagedAttention, window: int | None, softcap: float | None) -> None:
    case = make_case([(7, 19), (1, 13), (5, 5), (1, 1), (1, 16)])
    check(attention, case, window=window, softcap=softcap)


def test_a_mixed_batch_of_long_sequences(attention: PagedAttention) -> None:
    # One row over more keys than one task takes, a few rows, and a chunk of several tiles, each from its own blocks.
    case = make_case([(1, 1328), (5, 18), (129, 463)], kv_heads=3, group=3, size=64, block_size=16)
    for window in (None, 700):
        torch.testing.assert_close(case.run(attention, window=window), case.run(window=window), rtol=1e-4, atol=2e-5)


def test_gemmas_shape(attention: PagedAttention) -> None:
    case = make_case([(1, 600), (40, 90)], kv_heads=1, group=4, size=256, block_size=16)
    for options in ({}, {"window": 512}, {"window": 30, "softcap": 20.0}):
        expected = case.run(scale=1 / 16, **options)
        torch.testing.assert_close(case.run(attention, scale=1 / 16, **options), expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("size", "group", "block_size"), [(64, 3, 16), (80, 4, 16), (8, 7, 4), (256, 4, 32)])
def test_a_pool_in_float16_is_read_as_the_numbers_it_holds(
    compiled: Operations, size: int, group: int, block_size: int
) -> None:
    case = make_case([(1, 600), (5, 18), (70, 150), (1, 1)], size=size, group=group, block_size=block_size)
    narrow = dataclasses.replace(case, pool=case.pool.half())
    for options in ({}, {"window": 40, "softcap": 20.0}):
        options = {"scale": size**-0.5, **options}
        expected = dataclasses.replace(case, pool=case.pool.half().float()).run(**options)
        found = narrow.run(compiled.paged_attention, **options)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)
        assert not torch.allclose(expected, case.run(**options), rtol=1e-5, atol=1e-6), "the pool was read as it was"


@pytest.mark.parametrize("score", [80.0, -80.0])
def test_scores_far_from_zero_neither_overflow_nor_vanish(attention: PagedAttention, score: float) -> None:
    case = make_case([(1, 90), (70, 90)])
    case.q.fill_(1.0)
    pool = case.pool.clone()
    pool[:, 1, 0] = torch.where(pool[:, 1, 0].isnan(), torch.nan, score)
    flat = dataclasses.replace(case, pool=pool)  # all scores are equal, so each row is the mean of the values it sees
    torch.testing.assert_close(
        flat.run(attention, scale=1.0)[0, 0], case.values[0][:, 0].mean(dim=0), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        flat.run(attention, scale=1.0)[-1, 3], case.values[1][:, 1].mean(dim=0), rtol=1e-4, atol=1e-5
    )


@settings(max_examples=40, deadline=None)
@given(
    shapes=st.lists(
        st.integers(1, 14).flatmap(lambda length: st.tuples(st.integers(1, length), st.just(length))), max_size=5
    ),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    block_size=st.sampled_from([1, 2, 4, 16]),
    window=st.none() | st.integers(1, 15),
    softcap=st.none() | st.floats(0.5, 30),
    seed=st.integers(0, 999),
)
def test_any_ragged_batch(
    attention: PagedAttention,
    shapes: list[Shape],
    kv_heads: int,
    group: int,
    block_size: int,
    window: int | None,
    softcap: float | None,
    seed: int,
) -> None:
    case = make_case(shapes, kv_heads=kv_heads, group=group, block_size=block_size, seed=seed)
    check(attention, case, window=window, softcap=softcap)


def test_blocks_that_left_the_window_may_be_given_away(attention: PagedAttention) -> None:
    case = make_case([(1, 19), (3, 18)])
    expected = case.run(attention, window=5)
    case.tables[0, :3] = 0  # holds positions 0 .. 11; the row at 18 sees from 14 on
    case.tables[1, :2] = 0  # holds positions 0 .. 7; the row at 15 sees from 11 on
    torch.testing.assert_close(case.run(attention, window=5), expected)


def test_sequences_without_rows_and_rows_without_sequence_stay_zero(attention: PagedAttention) -> None:
    case = make_case([(2, 5), (0, 6), (1, 3)])
    padded = torch.cat((case.q, torch.full((4, 4, 8), 3.0)))
    found = attention(
        padded, case.pool, 1, case.tables, case.query_start, case.kv_lengths, scale=0.3, window=None, softcap=None
    )
    torch.testing.assert_close(found[:3].double(), naive(case), rtol=1e-4, atol=2e-5)
    assert not found[3:].any()


def test_a_padding_sequence_of_one_row_and_no_keys_gives_zeros(attention: PagedAttention) -> None:
    case = make_case([(1, 5), (1, 0)])
    found = case.run(attention)
    assert not found[1].any()
    assert found[0].isfinite().all()


def test_tables_may_be_columns_of_wider_ones_but_not_of_another_type(compiled: Operations) -> None:
    case = make_case([(1, 30), (4, 12)])
    wider = torch.cat((case.tables, torch.full_like(case.tables, 99)), dim=1)[:, : case.tables.shape[1]]
    found = dataclasses.replace(case, tables=wider).run(compiled.paged_attention)
    torch.testing.assert_close(found, case.run(), rtol=1e-4, atol=2e-5)
    with pytest.raises(TypeError, match=r"expected contiguous torch.int32"):
        dataclasses.replace(case, tables=case.tables.long()).run(compiled.paged_attention)


def test_the_reference_has_the_dtype_of_the_queries_and_float32_arithmetic() -> None:
    case = make_case([(1, 30), (4, 12)])
    narrow = paged_attention(
        case.q.bfloat16(),
        case.pool.bfloat16(),
        1,
        case.tables,
        case.query_start,
        case.kv_lengths,
        scale=0.3,
        window=None,
        softcap=None,
    )
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(narrow.float(), case.run(), rtol=0.05, atol=0.05)


def test_the_comparison_sees_a_window_off_by_one_and_a_missing_cap() -> None:
    case = make_case([(7, 19), (1, 13)])
    assert (case.run(window=5).double() - naive(case, window=6)).abs().max() > 0.01
    assert (case.run(softcap=None).double() - naive(case, softcap=1.5)).abs().max() > 0.01
