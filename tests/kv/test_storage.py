import pytest
import torch

from backend.kv.storage import (
    KVLayout,
    PoolTooLarge,
    allocate,
    blocks_for_tokens,
    blocks_that_fit,
    memory_for,
    token_slots,
    touch,
)

LAYOUT = KVLayout(num_layers=3, num_kv_heads=2, head_dim=8, block_size=4)


def test_the_pool_is_block_major_and_its_null_block_is_zero() -> None:
    pool = allocate(LAYOUT, 5)
    assert pool.shape == (5, 3, 2, 2, 4, 8)
    assert pool.is_contiguous()
    assert not pool[0].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_is_what_the_tensor_takes(dtype: torch.dtype) -> None:
    layout = KVLayout(num_layers=3, num_kv_heads=2, head_dim=8, dtype=dtype)
    assert memory_for(layout, 7) == allocate(layout, 7).nbytes
    assert layout.bytes_per_block == allocate(layout, 2)[1].nbytes


def test_as_many_blocks_fit_as_memory_holds_and_not_one_more() -> None:
    size = LAYOUT.bytes_per_block
    assert [blocks_that_fit(LAYOUT, size * 6 + extra) for extra in (-1, 0, 1)] == [5, 6, 6]
    assert blocks_that_fit(LAYOUT, -5) == 0


def test_blocks_for_tokens_adds_the_null_block() -> None:
    assert [blocks_for_tokens(LAYOUT, tokens) for tokens in (0, 1, 4, 5)] == [1, 2, 2, 3]


def test_a_pool_that_does_not_fit_says_how_much_it_needs_and_what_to_lower() -> None:
    blocks = 2**50 // LAYOUT.bytes_per_block * 64
    with pytest.raises(PoolTooLarge, match=rf"needs {memory_for(LAYOUT, blocks)} bytes .* lower max_tokens_in_paged"):
        allocate(LAYOUT, blocks)


def test_a_pool_with_no_usable_block_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1 blocks of .* is too small: expected at least 2"):
        allocate(LAYOUT, 1)


@pytest.mark.parametrize("name", ["num_layers", "num_kv_heads", "head_dim", "block_size"])
def test_an_empty_layout_is_refused_by_name(name: str) -> None:
    sizes = {"num_layers": 1, "num_kv_heads": 1, "head_dim": 1, "block_size": 1} | {name: 0}
    with pytest.raises(ValueError, match=f"{name} = 0: expected at least 1"):
        KVLayout(**sizes)


def test_touching_zeroes_whole_blocks_from_the_first_and_no_more_than_asked() -> None:
    blocks = allocate(KVLayout(num_layers=2, num_kv_heads=1, head_dim=4, block_size=2), 6)
    for num_bytes, touched in ((0, 0), (3 * blocks[0].nbytes - 1, 2), (3 * blocks[0].nbytes, 3), (1 << 30, 6)):
        blocks.fill_(1.0)
        touch(blocks, num_bytes)
        assert (blocks.flatten(1) == 0).all(dim=1).tolist() == [n < touched for n in range(6)]


def test_a_block_of_int16_has_room_for_what_its_numbers_are_worth() -> None:
    layout = KVLayout(num_layers=2, num_kv_heads=3, head_dim=64, block_size=32, dtype=torch.int16)
    blocks = allocate(layout, 4)
    # 32 float32 steps are as long as a row of 64 int16.
    assert layout.bytes_per_block == blocks[1].nbytes == 2 * 2 * 3 * (32 + 1) * 64 * 2
    slots = token_slots(blocks, layout)
    assert slots.shape == (4, 2, 2, 3, 32, 64)
    assert slots.data_ptr() == blocks.data_ptr()
    assert token_slots(allocate(LAYOUT, 5), LAYOUT).shape == (5, 3, 2, 2, 4, 8)
