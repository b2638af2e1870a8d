"""What both ways of attention on the CPU do to a vector: a product, the cap on scores, a factor."""

from typing import Any

import numpy as np

from kernels.cpu.exponential import hyperbolic_tangent
from kernels.cpu.jit import inline, reordering

LOWEST = np.float32(-np.inf)


@reordering
def dot(x: Any, y: Any) -> Any:
    """Sum of products of two float32 vectors."""
    total = np.float32(0)
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@inline
def cap(scores: Any, softcap: Any) -> None:
    """``softcap * tanh(score / softcap)``, in place."""
    for i in range(scores.shape[0]):
        scores[i] = softcap * hyperbolic_tangent(scores[i] / softcap)


@inline
def scale(values: Any, factor: Any) -> None:
    """Multiply in place."""
    for i in range(values.shape[0]):
        values[i] *= factor
