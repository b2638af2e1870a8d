"""TokenDetail: what a step says of a token beside its id, for those who asked."""

from __future__ import annotations

from typing import NamedTuple


class TokenDetail(NamedTuple):
    """Of the distribution that the model gave: log-softmax of the raw logits, before temperature, penalties, filters.

    log_prob: of the token taken. top: (token id, log-probability) of the likeliest, best first; as many as were asked
    for. logits: float32 of the whole vocabulary as the machine's bytes, or None if they were not asked for.
    """

    log_prob: float
    top: tuple[tuple[int, float], ...] = ()
    logits: bytes | None = None
