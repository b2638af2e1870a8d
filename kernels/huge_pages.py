"""Huge pages for memory that is read all over: one entry of the processor's page tables covers 2 MiB, not 4 KiB."""

import ctypes
import mmap

import torch
from torch import Tensor

_PAGE = 1 << 21
_PART = 1 << 26  # bytes asked of the system at a time; what of them is never written takes no memory
_LINE = 64
_ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)  # of Linux only


def ask_for_huge_pages(tensor: Tensor) -> bool:
    """Ask the system to back a CPU tensor, before it is first written, with huge pages; whether it took the advice.

    Only advice: where the system has none to give, or is set never to, the tensor works as well, a little slower.
    """
    if _ADVICE is None or not tensor.is_cpu:
        return False
    begin = -(-tensor.data_ptr() // _PAGE) * _PAGE
    length = (tensor.data_ptr() + tensor.nbytes - begin) // _PAGE * _PAGE
    if length <= 0:
        return False
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return bool(madvise(begin, length, _ADVICE) == 0)


class KeptTensors:
    """Tensors of the CPU that stay, such as weights: one behind the other in huge pages.

    Read over and over, 540 MB of weights in small pages cost more translations of addresses than a processor keeps.
    """

    def __init__(self) -> None:
        self._left = torch.empty(0, dtype=torch.uint8)

    def keep(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor here, contiguous, at a multiple of 64 bytes. It lives as long as it is referred to."""
        size = -(-tensor.nbytes // _LINE) * _LINE
        if size > self._left.numel():
            self._left = torch.empty(max(size, _PART), dtype=torch.uint8)
            ask_for_huge_pages(self._left)
        room, self._left = self._left[: tensor.nbytes], self._left[size:]
        return room.view(tensor.dtype).view(tensor.shape).copy_(tensor)
