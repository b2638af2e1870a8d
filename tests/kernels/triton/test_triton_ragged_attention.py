import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.launch import Schedule
from kernels.paged_attention.reference import paged_attention as reference_attention
from kernels.paged_attention.shapes import AttentionShape
from kernels.paged_attention.triton_kernel import paged_attention
from tests.kernels.triton.batches import (
    BLOCK_SIZES,
    GROUPS,
    HEAD_SIZES,
    MIXED,
    Shape,
    assert_agrees,
    make_case,
    narrowed,
)

WIDE = AttentionShape(32, 32, Schedule(4, 2))
REPRESENTATIVE = [(64, 4, 16), (80, 3, 32), (96, 7, 16), (128, 1, 64), (256, 8, 16)]
ALL = [*itertools.product(HEAD_SIZES, GROUPS, BLOCK_SIZES)]


@pytest.mark.parametrize(
    ("size", "group", "block_size"),
    [*REPRESENTATIVE, *(pytest.param(*each, marks=pytest.mark.nightly) for each in ALL if each not in REPRESENTATIVE)],
)
def test_head_sizes_groups_and_block_sizes(size: int, group: int, block_size: int) -> None:
    case = make_case([(1, 67), (9, 33), (3, 5)], size=size, group=group, block_size=block_size)
    assert_agrees(paged_attention, case, scale=size**-0.5)


@pytest.mark.parametrize("block_size", [16, pytest.param(32, marks=pytest.mark.nightly)])
def test_a_mixed_batch_of_one_long_decode_row_a_short_chunk_and_a_prompt(block_size: int) -> None:
    assert_agrees(paged_attention, make_case(MIXED, kv_heads=1, group=4, size=64, block_size=block_size), scale=0.125)


@pytest.mark.parametrize("window", [None, 17])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33])
def test_lengths_around_tile_and_block_edges(length: int, window: int | None) -> None:
    shapes: list[Shape] = [(1, length), (length, length), (-(-length // 2), length)]
    assert_agrees(paged_attention, make_case(shapes, kv_heads=1, size=16, block_size=16), window=window, shape=WIDE)


@pytest.mark.nightly
@pytest.mark.parametrize("tile", [16, 32, 64])
@pytest.mark.parametrize("window", [None, 1, 16, 40])
@pytest.mark.parametrize("length", [1, 2, *range(14, 19), *range(30, 35), *range(62, 67), 127, 128, 129])
def test_every_length_around_every_edge(length: int, window: int | None, tile: int) -> None:
    shapes: list[Shape] = [(1, length), (length, length), (-(-length // 2), length), (max(1, length - 16), length)]
    case = make_case(shapes, kv_heads=1, group=3, size=16, block_size=16)
    assert_agrees(paged_attention, case, window=window, shape=AttentionShape(16, tile, Schedule(4, 2)))


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("window", [1, 5, 16, 100])
def test_windows_and_caps(window: int, softcap: float | None) -> None:
    case = make_case([(7, 19), (1, 13), (5, 5), (1, 1), (1, 40)])
    assert_agrees(paged_attention, case, window=window, softcap=softcap)


def test_a_cap_far_below_the_scores_saturates_without_nan() -> None:
    assert_agrees(paged_attention, make_case([(3, 20)]), scale=1e4, softcap=0.5)


def test_the_prompt_shape_gives_what_the_decode_shape_gives() -> None:
    case = make_case([(70, 90), (1, 40)], size=64, block_size=16, kv_heads=1)
    for shape in (AttentionShape(128, 64, Schedule(8, 3)), AttentionShape(16, 32, Schedule(4, 3))):
        assert_agrees(paged_attention, case, scale=0.125, shape=shape)


def test_a_tile_may_be_part_of_a_block() -> None:
    case = make_case([(5, 100), (1, 64)], block_size=64, size=16)
    assert_agrees(paged_attention, case, shape=AttentionShape(16, 16, Schedule(4, 2)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_numbers(dtype: torch.dtype) -> None:
    case = narrowed(make_case([(1, 50), (6, 20)], size=64, block_size=16), dtype)
    assert_agrees(paged_attention, case, scale=0.125, tolerance=2e-2)


def test_empty_sequences_and_rows_of_no_sequence_give_zeros() -> None:
    case = make_case([(2, 5), (0, 6), (1, 3), (1, 0), (0, 0)])
    padded = torch.cat((case.q, torch.full((20, 4, 8), torch.nan)))
    arguments = (case.pool, 1, case.tables, case.query_start, case.kv_lengths, 0.3, None, None)
    found = paged_attention(padded, *arguments)
    torch.testing.assert_close(found[:4], reference_attention(case.q, *arguments))
    assert not found[3:].any()


def test_queries_may_be_a_slice_of_a_wider_tensor() -> None:
    case = make_case([(3, 20), (1, 9)])
    wide = torch.randn(4, 9, 8)
    arguments = (case.pool, 1, case.tables, case.query_start, case.kv_lengths, 0.3, None, None)
    found = paged_attention(wide[:, 2:6], *arguments)
    torch.testing.assert_close(found, reference_attention(wide[:, 2:6].contiguous(), *arguments))


def test_blocks_that_left_the_window_may_be_given_away() -> None:
    case = make_case([(1, 19), (3, 18)])
    arguments = (case.q, case.pool, 1, case.tables, case.query_start, case.kv_lengths, 0.3, 5, None)
    expected = paged_attention(*arguments)
    case.tables[0, :3] = 0
    case.tables[1, :2] = 0
    torch.testing.assert_close(paged_attention(*arguments), expected)


def test_an_offset_beyond_31_bits_is_reached() -> None:
    """The pool is a view whose blocks lie 2**30 elements apart; its pages are never touched elsewhere."""
    storage = torch.empty(3 * 2**30 + 4096, dtype=torch.int8)  # virtual memory only
    pool = storage.as_strided((4, 1, 2, 1, 16, 16), (2**30, 512, 256, 256, 16, 1)).view(torch.int8)
    scales = torch.ones(4, 1, 2, 1, 16)
    pool[3] = torch.randint(-100, 100, (1, 2, 1, 16, 16), dtype=torch.int8)
    q = torch.randn(2, 1, 16)
    tables, starts = torch.tensor([[3]], dtype=torch.int32), torch.tensor([0, 2], dtype=torch.int32)
    lengths = torch.tensor([11], dtype=torch.int32)
    found = paged_attention(q, pool, 0, tables, starts, lengths, 0.01, None, None, scales)
    expected = reference_attention(q, pool[3:].float(), 0, torch.zeros_like(tables), starts, lengths, 0.01, None, None)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def run_drawn(shapes: list[Shape], data: st.DataObject) -> None:
    case = make_case(
        shapes,
        kv_heads=data.draw(st.integers(1, 2)),
        group=data.draw(st.integers(1, 5)),
        size=data.draw(st.sampled_from([8, 16, 24])),
        block_size=data.draw(st.sampled_from([4, 16])),
        seed=data.draw(st.integers(0, 99)),
    )
    shape = AttentionShape(data.draw(st.sampled_from([16, 32])), data.draw(st.sampled_from([16, 32])), Schedule(4))
    window = data.draw(st.none() | st.integers(1, 40))
    assert_agrees(paged_attention, case, window=window, softcap=data.draw(st.none() | st.floats(0.5, 30)), shape=shape)


SHAPES = st.lists(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n))), max_size=4)


@settings(max_examples=8, deadline=None)
@given(shapes=SHAPES, data=st.data())
def test_any_ragged_batch(shapes: list[Shape], data: st.DataObject) -> None:
    run_drawn(shapes, data)


@pytest.mark.nightly
@settings(max_examples=400, deadline=None)
@given(shapes=SHAPES, data=st.data())
def test_any_ragged_batch_at_length(shapes: list[Shape], data: st.DataObject) -> None:
    run_drawn(shapes, data)


def test_the_comparison_sees_a_window_off_by_one() -> None:
    case = make_case([(7, 19), (1, 13)])
    with pytest.raises(AssertionError, match="not close"):
        assert_agrees(lambda *a, **k: paged_attention(*a[:7], 6, a[8], **k), case, window=5)
