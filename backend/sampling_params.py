"""SamplingParams: how a request wants its tokens drawn and ended, and the limits that keep that sane."""

from __future__ import annotations

import math
from dataclasses import dataclass

from backend.errors import InvalidRequest

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing float32 logits by less overflows."""

MAX_TEMPERATURE = 1e4
MAX_STOP_IDS = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How to draw and when to end.

    temperature: 0 (or below 1e-5) is greedy. top_k: 0 = whole vocabulary. top_p: 1 = all. min_p: 0 = all, else tokens
    less likely than min_p times the likeliest are cut. Filters apply in this order: temperature, top_k, top_p, min_p.
    seed: 64 bits; the draw at a position depends on (seed, position, logits) only.
    end_ids: end of sequence, reason ``eos``. stop_ids: the request's own stop tokens, reason ``stop``.
    """

    max_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    end_ids: frozenset[int] = frozenset()
    stop_ids: frozenset[int] = frozenset()

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken, without a draw."""
        return self.temperature < GREEDY_BELOW or self.top_k == 1

    def validate(self, vocab_size: int) -> None:
        """Raise InvalidRequest, naming field, value and limit, for whatever is out of range (NaN included)."""
        _within("max_tokens", self.max_tokens, 1, 1 << 31)
        _within("temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        _within("top_k", self.top_k, 0, 1 << 31)
        _within("top_p", self.top_p, 0.0, 1.0, low_allowed=False)
        _within("min_p", self.min_p, 0.0, 1.0)
        _within("seed", self.seed, 0, (1 << 64) - 1)
        _ids("end_id", self.end_ids, vocab_size)
        _ids("stop_token_ids", self.stop_ids, vocab_size)


def _within(name: str, value: float, low: float, high: float, low_allowed: bool = True) -> None:
    fits = low <= value <= high if low_allowed else low < value <= high
    if math.isnan(value) or not fits:
        raise InvalidRequest(name, f"{value} is out of range, allowed is {'[' if low_allowed else '('}{low}, {high}]")


def _ids(name: str, ids: frozenset[int], vocab_size: int) -> None:
    if len(ids) > MAX_STOP_IDS:
        raise InvalidRequest(name, f"{len(ids)} ids, at most {MAX_STOP_IDS} are allowed")
    for token in ids:
        _within(name, token, 0, vocab_size - 1)
