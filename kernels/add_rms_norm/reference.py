"""Residual addition, then RMSNorm, in plain torch."""

from torch import Tensor

from kernels.rms_norm.reference import rms_norm


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float) -> tuple[Tensor, Tensor]:
    """Add ``x`` to the residual stream and normalise the sum.

    Args:
        x: ``[T, D]``.
        residual: ``[T, D]`` in x's dtype.
        weight, eps, offset: see ``kernels.rms_norm.reference.rms_norm``.

    Returns:
        The normalised sum and the sum itself, both ``[T, D]`` in x's dtype. The sum is rounded to it before it is
        normalised, as two separate operations would.
    """
    summed = x + residual
    return rms_norm(summed, weight, eps, offset), summed
