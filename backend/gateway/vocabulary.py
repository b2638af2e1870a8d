"""Vocabulary: token ids as clients of OpenAI's interface see them."""

from __future__ import annotations

import json
from pathlib import Path

from backend.text.token_bytes import TokenBytes
from backend.text.tokenizer_file import tokenizer_json


class Vocabulary:
    """Of one model directory. Special tokens, which have no bytes in running text, show as they are written."""

    def __init__(self, directory: Path) -> None:
        """Raises ConfigError or OSError if the directory holds no tokenizer."""
        table = TokenBytes.from_directory(directory).table
        added = json.loads(tokenizer_json(directory)).get("added_tokens", [])
        written = {token["id"]: str(token["content"]).encode() for token in added}
        self._bytes = [data or written.get(token, b"") for token, data in enumerate(table)]

    def data(self, token: int) -> bytes:
        """The token's bytes; none for ids that pad the vocabulary."""
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""
