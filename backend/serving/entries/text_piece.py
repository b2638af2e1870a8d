"""TextPiece: one response of the engine as text entries see it."""

from __future__ import annotations

import math
from typing import NamedTuple

from backend.serving.inputs import Tensors
from backend.text.text_stream import TextSpan
from backend.text.token_bytes import TokenBytes


class TokenLogProbs(NamedTuple):
    """top: (id, log-probability) of the likeliest tokens, best first."""

    token: int
    log_prob: float
    top: list[tuple[int, float]]


class TextPiece(NamedTuple):
    """New text of one sequence. reason: why it ended, "" while it runs. num_output: new tokens.

    beams: the texts of all beams, where there are several, the best first; ``text`` and ``reason`` are of that one.
    """

    sequence: int
    text: str
    reason: str
    num_input: int
    num_output: int
    log_probs: list[TokenLogProbs]
    beams: tuple[str, ...]

    @classmethod
    def read(cls, outputs: Tensors, token_bytes: TokenBytes) -> TextPiece:
        """From a response to a request with ``detokenize`` and without an echo."""
        rows, edges = outputs["text_ids"][0].tolist(), outputs["text_span"].reshape(-1, 2).tolist()
        texts = [TextSpan(row, *span).text(token_bytes) for row, span in zip(rows, edges, strict=True)]
        return cls(
            int(outputs["sequence_index"].item()),
            texts[0],
            outputs["finish_reason"].reshape(-1)[0].decode(),
            int(outputs["num_input_tokens"].item()),
            int(outputs["num_output_tokens"].item()),
            _log_probs(outputs),
            tuple(texts),
        )


def _log_probs(outputs: Tensors) -> list[TokenLogProbs]:
    if "output_log_probs" not in outputs:
        return []
    tokens = outputs["output_ids"].reshape(-1).tolist()
    chosen = outputs["output_log_probs"].reshape(-1).tolist()
    if "top_log_probs" not in outputs or not tokens:
        return [TokenLogProbs(token, chance, []) for token, chance in zip(tokens, chosen, strict=True)]
    ids = outputs["top_log_prob_ids"].reshape(len(tokens), -1).tolist()
    chances = outputs["top_log_probs"].reshape(len(tokens), -1).tolist()
    return [
        TokenLogProbs(token, chance, list(zip(top_ids, top, strict=True)))
        for token, chance, top_ids, top in zip(tokens, chosen, ids, chances, strict=True)
    ]


def cumulative(log_probs: list[TokenLogProbs]) -> float:
    """Log-probability of all these tokens together."""
    return math.fsum(each.log_prob for each in log_probs)
