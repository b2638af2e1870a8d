"""The softmax of attention on the CPU, taken a few keys at a time.

Scores are exponentiated against the largest seen so far; when a larger one comes, what was summed before is scaled
down (Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867, section 3).
"""

from typing import Any

import numpy as np

from kernels.cpu.exponential import exponential, hyperbolic_tangent
from kernels.cpu.jit import comparing, inline, reordering

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


@comparing
def _largest(scores: Any) -> Any:
    top = scores[0]
    for i in range(scores.shape[0]):
        top = max(top, scores[i])
    return top


@reordering
def _exponentiate(scores: Any, top: Any) -> Any:
    total = np.float32(0)
    for i in range(scores.shape[0]):
        scores[i] = exponential(scores[i] - top)
        total += scores[i]
    return total


@inline
def scale(values: Any, factor: Any) -> None:
    """Multiply in place."""
    for i in range(values.shape[0]):
        values[i] *= factor


@inline
def absorb(scores: Any, largest: Any, total: Any, sums: Any) -> None:
    """Turn one row's new scores (at least one) into weights, and bring what it has summed to the same footing.

    largest and total are float32 ``[1]``, sums ``[D]``.
    """
    top = max(largest[0], _largest(scores))
    if top > largest[0]:
        factor = exponential(largest[0] - top)
        total[0] *= factor
        largest[0] = top
        scale(sums, factor)
    total[0] += _exponentiate(scores, top)
