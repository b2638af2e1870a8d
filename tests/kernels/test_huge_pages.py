import mmap
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from kernels.huge_pages import KeptTensors, ask_for_huge_pages


def advised(address: int) -> bool:
    """Whether the system has the advice on record for the mapping that holds an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            inside = begin <= address < end
        elif inside and first == "VmFlags:":
            return "hg" in line.split()
    return False


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no such advice")
def test_the_system_takes_the_advice_for_a_large_tensor_and_its_numbers_are_as_before() -> None:
    tensor = torch.empty(1 << 23)
    middle = tensor.data_ptr() + tensor.nbytes // 2
    assert not advised(middle)
    assert ask_for_huge_pages(tensor)
    assert advised(middle)
    tensor.fill_(2.0)
    assert tensor.sum().item() == 2.0 * (1 << 23)


def test_what_holds_no_huge_page_is_left_alone() -> None:
    assert not ask_for_huge_pages(torch.empty(1000))


def test_kept_tensors_are_the_same_numbers_side_by_side_and_each_for_itself() -> None:
    memory = KeptTensors()
    given = [torch.arange(n).to(dtype) for n, dtype in ((7, torch.int8), (1 << 20, torch.float32), (3, torch.float32))]
    given.append(torch.arange(6.0).view(2, 3).T)
    kept = [memory.keep(tensor) for tensor in given]
    assert all(torch.equal(one, other) for one, other in zip(kept, given, strict=True))
    assert all(one.is_contiguous() and one.data_ptr() % 64 == 0 for one in kept)
    distances = [b.data_ptr() - a.data_ptr() for a, b in pairwise(kept)]
    assert distances == [64, 4 << 20, 64]
    kept[2].fill_(9)
    assert torch.equal(kept[1], given[1])
    assert torch.equal(kept[3], given[3])


def test_a_tensor_larger_than_what_is_asked_for_at_a_time_is_kept_as_well() -> None:
    large = torch.zeros((65 << 20) + 1, dtype=torch.int8)
    large[-1] = 5
    memory = KeptTensors()
    memory.keep(torch.ones(3))
    kept = memory.keep(large)
    assert kept.shape == large.shape
    assert kept[-1] == 5
    assert kept.sum(dtype=torch.int64) == 5
