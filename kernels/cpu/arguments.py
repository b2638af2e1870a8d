"""Tensors as compiled code takes them: an address and strides in elements, checked."""

import torch
from torch import Tensor

FLOAT32, FLOAT16, INT16 = range(3)  # what a pool holds, as compiled code knows it
_KINDS = {torch.float32: FLOAT32, torch.float16: FLOAT16, torch.int16: INT16}


def rows_of(x: Tensor) -> tuple[int, int, int]:
    """Address, number of rows and their distance, of a float32 ``[T, D]`` whose rows are contiguous."""
    _check(x)
    return x.data_ptr(), x.shape[0], x.stride(0)


def heads_of(x: Tensor) -> tuple[int, int, int]:
    """Address, distance of rows and distance of heads, of a float32 ``[T, H, D]`` whose heads are contiguous."""
    _check(x)
    return x.data_ptr(), x.stride(0), x.stride(1)


def _check(x: Tensor) -> None:
    if x.dtype != torch.float32 or (x.stride(-1) != 1 and x.shape[-1] > 1) or not x.is_cpu:
        raise TypeError(f"expected float32 with contiguous rows on the CPU, got {x.dtype}, strides {x.stride()}")


def indices_of(x: Tensor, dtype: torch.dtype) -> int:
    """Address of whole numbers that lie side by side, in rows where there are two dimensions."""
    if x.dtype != dtype or (x.stride(-1) != 1 and x.shape[-1] > 1) or not x.is_cpu:
        raise TypeError(f"expected contiguous {dtype} on the CPU, got {x.dtype}, strides {x.stride()}")
    return x.data_ptr()


def number_kind(pool: Tensor) -> int:
    """``FLOAT32``, ``FLOAT16`` or ``INT16``. Raises TypeError for a pool of anything else."""
    if pool.dtype not in _KINDS:
        raise TypeError(f"a pool of {pool.dtype}: expected one of {', '.join(map(str, _KINDS))}")
    return _KINDS[pool.dtype]
