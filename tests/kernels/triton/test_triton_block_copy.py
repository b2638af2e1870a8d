import pytest
import torch

from kernels.block_copy import reference, triton_kernel


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("block", [(2, 2, 3, 16, 24), (1, 1, 1, 1, 5), (3, 2, 1, 16, 128)])
def test_blocks_land_whole_and_nothing_else_moves(block: tuple[int, ...], dtype: torch.dtype) -> None:
    original = (torch.randn(9, *block) * 20).to(dtype)
    sources, destinations = torch.tensor([1, 7, 1]), torch.tensor([3, 2, 8])
    results = []
    for room in (reference, triton_kernel):
        pool, staging = original.clone(), torch.zeros(5, *block, dtype=dtype)
        room.copy_blocks(pool, sources, destinations)
        room.gather_blocks(pool, torch.tensor([8, 4, 0]), staging)
        room.scatter_blocks(staging, torch.tensor([5, 6]), pool)
        results.append((pool, staging))
    for expected, found in zip(*results, strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(results[1][0][[0, 1, 4, 7]], original[[0, 1, 4, 7]])
    assert torch.equal(results[1][0][5], original[1])


def test_no_blocks_is_no_launch() -> None:
    pool = torch.ones(2, 4)
    triton_kernel.copy_blocks(pool, torch.zeros(0).long(), torch.zeros(0).long())
    assert pool.all()
