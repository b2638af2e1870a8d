"""Huge pages for memory that is read all over: one entry of the processor's page tables covers 2 MiB, not 4 KiB."""

import ctypes
import mmap

from torch import Tensor

_PAGE = 1 << 21
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
