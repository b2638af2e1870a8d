import mmap
from pathlib import Path

import pytest
import torch

from backend.kv.huge_pages import ask_for_huge_pages


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
