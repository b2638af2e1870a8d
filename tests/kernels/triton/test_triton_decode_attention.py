import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import launch
from kernels.paged_attention import triton_decode
from kernels.paged_attention.reference import paged_attention as reference_attention
from kernels.paged_attention.triton_decode import paged_attention
from tests.kernels.triton.batches import BLOCK_SIZES, GROUPS, HEAD_SIZES, assert_agrees, make_case, narrowed

REPRESENTATIVE = [(64, 4, 16), (80, 3, 16), (96, 7, 32), (128, 1, 64), (256, 8, 16)]
ALL = [*itertools.product(HEAD_SIZES, GROUPS, BLOCK_SIZES)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut after every tile, so that short sequences have several parts."""
    monkeypatch.setattr(triton_decode, "UNIT_KEYS", 16)


@pytest.mark.parametrize(
    ("size", "group", "block_size"),
    [*REPRESENTATIVE, *(pytest.param(*each, marks=pytest.mark.nightly) for each in ALL if each not in REPRESENTATIVE)],
)
def test_head_sizes_groups_and_block_sizes(size: int, group: int, block_size: int) -> None:
    case = make_case([(1, 131), (1, 33), (1, 5)], size=size, group=group, block_size=block_size)
    assert_agrees(paged_attention, case, scale=size**-0.5)


@pytest.mark.parametrize("lengths", [[1], [15, 16, 17], [127, 128, 129], [1328, 18, 463], [70, 0, 64, 1, 31, 0]])
def test_lengths_around_tile_block_and_part_edges(lengths: list[int]) -> None:
    assert_agrees(paged_attention, make_case([(1, n) for n in lengths], kv_heads=1, size=16, block_size=16))


@pytest.mark.nightly
@pytest.mark.parametrize("window", [None, 1, 16, 100])
@pytest.mark.parametrize("processors", [1, 3, 20])
def test_every_length_around_every_edge(
    window: int | None, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(launch, "limits", lambda _: launch.DeviceLimits(processors, 2**17))
    edges = [n + around for n in (16, 32, 64, 128, 256, 512) for around in (-1, 0, 1)]
    for length in edges:
        assert_agrees(
            paged_attention, make_case([(1, length), (1, 40)], kv_heads=1, size=16, block_size=16), window=window
        )


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("window", [1, 16, 17, 100])
def test_windows_and_caps(window: int, softcap: float | None) -> None:
    case = make_case([(1, 200), (1, 13), (1, 16)], block_size=16)
    assert_agrees(paged_attention, case, window=window, softcap=softcap)


def test_narrow_numbers() -> None:
    case = narrowed(make_case([(1, 150), (1, 20)], size=64, block_size=16), torch.bfloat16)
    assert_agrees(paged_attention, case, scale=0.125, tolerance=2e-2)


def test_one_long_sequence_is_spread_and_short_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and log sums are written for the long one alone: the short one has a single item."""
    made: list[torch.Tensor] = []
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **k: made.append(empty(*a, **k).fill_(torch.nan)) or made[-1])
    case = make_case([(1, 400), (1, 9)], block_size=16, kv_heads=1)
    found = paged_attention(case.q, case.pool, 1, case.tables, case.query_start, case.kv_lengths, 0.3, None, None)
    log_sums = made[2]
    assert found.isfinite().all()
    assert log_sums.shape[0] == 4 * triton_decode.PROGRAMS_PER_MULTIPROCESSOR + 2
    # 409 keys for 32 items: chunks of 13, rounded up to the tile's 32 keys, so 13 for the long one.
    assert log_sums.isfinite().all(dim=1).sum() == 13


def test_the_grid_does_not_depend_on_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    grids: list[tuple[int, ...]] = []
    kernel = triton_decode.split_attention_kernel

    class Spy:
        def __getitem__(self, grid: tuple[int, ...]) -> object:
            grids.append(grid)
            return kernel[grid]

    monkeypatch.setattr(triton_decode, "split_attention_kernel", Spy())
    for lengths in ([1, 1], [300, 7]):
        assert_agrees(paged_attention, make_case([(1, n) for n in lengths], block_size=16))
    assert grids[0] == grids[1]


def test_more_rows_than_sequences_are_refused() -> None:
    case = make_case([(2, 5)])
    with pytest.raises(ValueError, match="2 rows for 1 sequences: decode attention takes one row each"):
        paged_attention(case.q, case.pool, 1, case.tables, case.query_start, case.kv_lengths, 0.3, None, None)


def test_blocks_that_left_the_window_may_be_given_away() -> None:
    case = make_case([(1, 90), (1, 18)])
    arguments = (case.q, case.pool, 1, case.tables, case.query_start, case.kv_lengths, 0.3, 5, None)
    expected = reference_attention(*arguments)
    case.tables[0, :21] = 0
    case.tables[1, :3] = 0
    torch.testing.assert_close(paged_attention(*arguments), expected)


@settings(max_examples=5, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 150), min_size=1, max_size=5),
    group=st.integers(1, 5),
    window=st.none() | st.integers(1, 60),
    seed=st.integers(0, 99),
)
def test_any_decode_batch(lengths: list[int], group: int, window: int | None, seed: int) -> None:
    case = make_case([(1, n) for n in lengths], kv_heads=1, group=group, block_size=16, seed=seed)
    assert_agrees(paged_attention, case, window=window)
