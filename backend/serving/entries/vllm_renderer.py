"""VllmRenderer: an answer in the words of Triton Server's vLLM backend."""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from backend.serving.entries.text_piece import TextPiece, TokenLogProbs, cumulative
from backend.serving.entries.text_request import TextRequest
from backend.serving.inputs import Tensors
from backend.serving.response_stream import Failure
from backend.text.token_bytes import TokenBytes

_REASONS = {"": "None", "eos": "stop"}
_CANCELLED = Failure("Request was cancelled", "CANCELLED")


class VllmRenderer:
    """Collects what is new of each sequence, and shows it at once or at the end."""

    def __init__(self, request: TextRequest, token_bytes: TokenBytes) -> None:
        self._request = request
        self._token_bytes = token_bytes
        count = request.num_sequences
        self._texts = [request.text.decode() if request.echo else ""] * count
        self._reasons = [""] * count
        self._cumulative = [0.0] * count
        self._num_output = [0] * count
        self._log_probs: list[list[TokenLogProbs]] = [[] for _ in range(count)]

    def render(self, outputs: Tensors) -> tuple[Tensors | Failure | None, bool]:
        """A cancelled stream ends with an error; a cancelled whole answer is what there is of it."""
        piece = TextPiece.read(outputs, self._token_bytes)
        self._add(piece)
        complete = all(self._reasons)
        if self._request.streaming and piece.reason == "cancelled":
            return _CANCELLED, True
        if not (self._request.streaming or complete):
            return None, False
        return self._response(piece.num_input), complete

    def cancelled(self) -> Tensors | Failure:
        """As vLLM's backend ends what was cancelled in its queue."""
        return _CANCELLED

    def _add(self, piece: TextPiece) -> None:
        n = piece.sequence
        self._texts[n] += piece.text
        self._reasons[n] = piece.reason
        self._cumulative[n] += cumulative(piece.log_probs)
        self._num_output[n] += piece.num_output
        self._log_probs[n] += piece.log_probs

    def _response(self, num_input: int) -> Tensors:
        reasons = [_REASONS.get(reason, reason) for reason in self._reasons]
        outputs = {
            "text_output": _strings(self._texts),
            "finish_reason": _strings(reasons),
            "cumulative_logprob": np.array(self._cumulative, np.float32),
            "logprobs": _strings([self._json(each) for each in self._log_probs]),
            "num_input_tokens": np.array([num_input], np.uint32),
            "num_output_tokens": np.array(self._num_output, np.uint32),
        }
        count = self._request.num_sequences
        self._texts, self._num_output, self._log_probs = [""] * count, [0] * count, [[] for _ in range(count)]
        return {name: array for name, array in outputs.items() if name == "text_output" or name in self._request.flags}

    def _json(self, log_probs: list[TokenLogProbs]) -> str:
        """vLLM's list of one object per token; "null" where none were asked for."""
        return json.dumps([self._alternatives(each) for each in log_probs] if self._request.log_probs else None)

    def _alternatives(self, token: TokenLogProbs) -> dict[int, dict[str, object]]:
        """The likeliest and the sampled one, whose rank is not known where it is not among them."""
        ranked: list[tuple[int, float, int | None]] = [
            (each, chance, rank) for rank, (each, chance) in enumerate(token.top, 1)
        ]
        if token.token not in [each for each, _ in token.top]:
            ranked.append((token.token, token.log_prob, None))
        return {
            each: {"logprob": chance, "rank": rank, "decoded_token": self._shown(each)} for each, chance, rank in ranked
        }

    def _shown(self, token: int) -> str:
        return self._token_bytes.text(self._token_bytes.join((token,)))


def _strings(values: list[str]) -> NDArray[np.object_]:
    return np.array([value.encode() for value in values], np.object_)
