"""TokenBytes: the exact bytes that each token id stands for in running text.

Built from tokenizer.json's decoder, for the two kinds in use: byte-level BPE (GPT-2's byte alphabet) and
sentencepiece-style pieces (U+2581 for a space, ``<0xNN>`` for single bytes). Text is then a matter of joining bytes,
which, unlike decoding ids one by one, can be cut anywhere.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from backend.errors import ConfigError
from backend.text.tokenizer_file import tokenizer_json

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"
_EACH_BYTE = "inflight.each_byte"


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error(_EACH_BYTE, _replace_each_byte)


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """table[id] is the token's bytes; empty for special tokens, which never show in text.

    byte_fallback: bytes that form no character are shown as one U+FFFD each (the sentencepiece way) rather than one
    per broken sequence (the byte-level way), as the tokenizer's own decoder does.
    strips_first_space: the tokenizer puts a space before the first word of a text and takes it off again when decoding.
    """

    table: tuple[bytes, ...]
    byte_fallback: bool
    strips_first_space: bool

    def join(self, ids: Iterable[int]) -> bytes:
        """Bytes of the ids in order. An id without an entry (padding of the vocabulary) has none."""
        table = self.table
        return b"".join(table[i] if i < len(table) else b"" for i in ids)

    def text(self, data: bytes) -> str:
        """Decode whole text; what is no character becomes U+FFFD."""
        return data.decode("utf-8", "replace" if not self.byte_fallback else _EACH_BYTE)

    @classmethod
    def from_directory(cls, directory: Path) -> TokenBytes:
        """Read the directory's tokenizer. Raises ConfigError if there is none, or its decoder is of another kind."""
        content = json.loads(tokenizer_json(directory))
        kinds = _decoder_kinds(content.get("decoder"))
        byte_level = "ByteLevel" in kinds
        if not byte_level and not kinds & {"ByteFallback", "Replace", "Metaspace"}:
            raise ConfigError(
                f"tokenizer.json: decoder {sorted(kinds)} is not supported, ByteLevel and ByteFallback are"
            )
        pieces = _pieces(content["model"]["vocab"])
        table = [(_byte_level if byte_level else _sentencepiece)(piece) for piece in pieces]
        _overlay_added_tokens(table, content.get("added_tokens", []))
        return cls(tuple(table), "ByteFallback" in kinds, bool(kinds & {"Strip", "Metaspace"}))


def _decoder_kinds(decoder: dict[str, Any] | None) -> set[str]:
    if decoder is None:
        return set()
    return {decoder["type"]}.union(*(_decoder_kinds(part) for part in decoder.get("decoders", [])))


def _pieces(vocab: dict[str, int] | Sequence[tuple[str, float]]) -> list[str]:
    """Pieces by id; BPE lists {piece: id}, Unigram [[piece, score], ...]. Ids may have gaps."""
    if not isinstance(vocab, dict):
        return [piece for piece, _ in vocab]
    pieces = [""] * (max(vocab.values()) + 1)
    for piece, token in vocab.items():
        pieces[token] = piece
    return pieces


def _overlay_added_tokens(table: list[bytes], added: Iterable[dict[str, Any]]) -> None:
    for token in added:
        table.extend([b""] * (token["id"] + 1 - len(table)))
        table[token["id"]] = b"" if token["special"] else token["content"].encode()


@cache
def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins: printable Latin-1 bytes stand for themselves, the others for U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


def _byte_level(piece: str) -> bytes:
    alphabet = _byte_alphabet()
    if all(char in alphabet for char in piece):
        return bytes(alphabet[char] for char in piece)
    return piece.encode()


def _sentencepiece(piece: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(_SPACE, " ").encode()
