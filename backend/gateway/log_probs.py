"""Log-probabilities as OpenAI's two interfaces give them."""

from __future__ import annotations

import codecs
from typing import Any

from backend.gateway.triton_wire import Piece
from backend.gateway.vocabulary import Vocabulary


def of_chat(piece: Piece, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """One entry per token of the piece."""
    return [
        _entry(token, log_prob, vocabulary)
        | {"top_logprobs": [_entry(*pair, vocabulary) for pair in _alternatives(piece, at)]}
        for at, (token, log_prob) in enumerate(zip(piece.ids, piece.log_probs, strict=True))
    ]


def _entry(token: int, log_prob: float, vocabulary: Vocabulary) -> dict[str, Any]:
    data = vocabulary.data(token)
    return {"token": data.decode("utf-8", "replace"), "logprob": log_prob, "bytes": list(data)}


def _alternatives(piece: Piece, at: int) -> list[tuple[int, float]]:
    if not piece.top_ids:
        return []
    return list(zip(piece.top_ids[at], piece.top_log_probs[at], strict=True))


class CompletionLogProbs:
    """Those of one choice, which count characters from its beginning."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, piece: Piece) -> dict[str, Any]:
        """The four lists for the piece's tokens; a token's offset is where the first character that it ends begins."""
        offsets = []
        for token in piece.ids:
            offsets.append(self._offset)
            self._offset += len(self._decoder.decode(self._vocabulary.data(token)))
        top = [{self._shown(t): p for t, p in reversed(_alternatives(piece, at))} for at in range(len(piece.ids))]
        return {
            "tokens": [self._shown(token) for token in piece.ids],
            "token_logprobs": list(piece.log_probs),
            "top_logprobs": top if piece.top_ids else None,
            "text_offset": offsets,
        }

    def _shown(self, token: int) -> str:
        """OpenAI's way to write a token that is no whole characters."""
        data = self._vocabulary.data(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def joined(parts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The lists of several pieces of one choice, one after the other; None without any piece."""
    if not parts:
        return None
    keys = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    return {key: _joined([part[key] for part in parts]) for key in keys}


def _joined(lists: list[list[Any] | None]) -> list[Any] | None:
    given = [each for each in lists if each is not None]
    return [item for each in given for item in each] if given else None
