"""Spellings: the token sequences in which a tokenizer writes a word, inside a text and after a space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from backend.text.token_bytes import TokenBytes

_ANCHORS = ("\n", ".")
"""Texts to put before a word, so that it does not stand at a text's beginning, where some tokenizers add a space."""


class Encoder(Protocol):
    """A tokenizer."""

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text without any special token of the tokenizer's own."""


class Spellings:
    """Finds spellings by the bytes that their tokens stand for, so they mean what a model writes with them.

    They are the tokenizer's own: a model that puts a word together from other pieces writes something else.
    """

    def __init__(self, encoder: Encoder, token_bytes: TokenBytes) -> None:
        self._encoder = encoder
        self._token_bytes = token_bytes

    def of(self, word: str) -> list[tuple[int, ...]]:
        """Distinct spellings of the word and of a space and the word. At least one, if the word is not empty."""
        found: dict[tuple[int, ...], None] = {}
        for text in (word, f" {word}"):
            meant = {text.encode(), f" {text}".encode()} if text == word else {text.encode()}
            for ids in self._candidates(text):
                if self._token_bytes.join(ids) in meant:
                    found[ids] = None
        return list(found) or [tuple(self._encoder.encode_plain(word))]

    def _candidates(self, text: str) -> list[tuple[int, ...]]:
        """The text by itself, and after each anchor, where the anchor keeps tokens of its own."""
        encode: Callable[[str], list[int]] = self._encoder.encode_plain
        found = [tuple(encode(text))]
        for anchor in _ANCHORS:
            alone, together = encode(anchor), encode(anchor + text)
            if together[: len(alone)] == alone:
                found.append(tuple(together[len(alone) :]))
        return found
