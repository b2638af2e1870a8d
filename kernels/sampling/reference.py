"""Drawing a token: filters and a stateless Gumbel draw, in plain torch. The oracle of the other implementations.

argmax(logits / T + G) with G standard Gumbel noise is a draw from softmax(logits / T) (Gumbel 1954; Maddison et al.,
A* Sampling, 2014, section 2). G is a function of (seed, position, token id) alone, by the counter-based generator
Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011, section 3.3), so a draw is the same
whatever else is in the batch, and after a preemption.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_Words = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]


def philox4x32(counter: _Words, key: tuple[int, int], rounds: int = 10) -> _Words:
    """Four 32-bit random words for each counter. counter: four uint64 arrays of 32-bit values; key: two 32-bit ints."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> _32) ^ c1 ^ np.uint64(k0),
            product1 & _LOW,
            (product0 >> _32) ^ c3 ^ np.uint64(k1),
            product0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def gumbel_noise(seed: int, position: int, vocab_size: int) -> Tensor:
    """Standard Gumbel noise of every token id: float32 [vocab_size], the same for the same (seed, position).

    Token i uses word i % 4 of counter (i // 4, position, 0, 0) under the seed's two halves as key. The word's upper 23
    bits, plus a half, make a number in (0, 1) that float32 holds exactly, so that no device can round it to 0 or 1.
    """
    index = np.arange(-(-vocab_size // 4), dtype=np.uint64)
    nothing = np.zeros_like(index)
    counter = (index, np.full_like(index, position), nothing, nothing)
    words = np.stack(philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32)), axis=1).reshape(-1)[:vocab_size]
    uniform = ((words >> np.uint64(9)).astype(np.float64) + 0.5) * 2.0**-23
    return torch.from_numpy((-np.log(-np.log(uniform))).astype(np.float32))


def filter_logits(logits: Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> Tensor:
    """Scaled logits float32 [vocab]; cut tokens are -inf. In this order: temperature, top_k, top_p, min_p.

    top_k 0 keeps all; tokens that tie with the k-th stay. top_p keeps the smallest set of likeliest tokens whose
    probability reaches it. min_p cuts what is less likely than min_p times the likeliest. One token always stays.
    """
    scaled = logits.float() / temperature
    if 0 < top_k < scaled.numel():
        scaled = scaled.masked_fill(scaled < torch.topk(scaled, top_k).values[-1], -torch.inf)
    if top_p < 1.0:
        scaled = _keep_top_p(scaled, top_p)
    if min_p > 0.0:
        scaled = scaled.masked_fill(scaled < scaled.max() + float(np.log(min_p)), -torch.inf)
    return scaled


def _keep_top_p(scaled: Tensor, top_p: float) -> Tensor:
    ordered, ids = torch.sort(scaled, descending=True, stable=True)
    probability = torch.softmax(ordered, dim=0)
    before = torch.cumsum(probability, dim=0) - probability
    cut = before >= top_p
    cut[0] = False
    return scaled.index_fill(0, ids[cut], -torch.inf)


def draw(scaled: Tensor, seed: int, position: int) -> Tensor:
    """One token id, int64 scalar, drawn from softmax(scaled). scaled: float32 [vocab]."""
    return torch.argmax(scaled + gumbel_noise(seed, position, scaled.numel()))
