"""PromptTokenizer: a prompt's text -> token ids, as the model's own tokenizer reads it."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from backend.text.tokenizer_file import tokenizer_config, tokenizer_json


class PromptTokenizer:
    """Special tokens written in the text are read as such, as chat templates need.

    The beginning-of-sequence token is added where the tokenizer's files say so, and never twice: a chat template that
    writes it itself is left as it is. Thread-safe: encoding changes no state.
    """

    def __init__(self, directory: Path, add_special_tokens: bool = True) -> None:
        """Raises ConfigError if the directory holds no tokenizer."""
        self._tokenizer = Tokenizer.from_str(tokenizer_json(directory))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = tokenizer_config(directory)
        self._bos = self._id_of(config.get("bos_token"))
        # transformers lets this key overrule what tokenizer.json's post-processor adds.
        self._adds_bos = config.get("add_bos_token") if self._bos is not None else None
        self._add_special_tokens = add_special_tokens

    def _id_of(self, token: object) -> int | None:
        content = token.get("content") if isinstance(token, dict) else token
        return self._tokenizer.token_to_id(content) if isinstance(content, str) else None

    def encode_plain(self, text: str) -> list[int]:
        """Token ids of a piece of text, without a beginning-of-sequence token or any other of the tokenizer's own."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt; may be empty."""
        by_post_processor = self._add_special_tokens and self._adds_bos is None
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=by_post_processor).ids
        if not self._add_special_tokens:
            return ids
        if self._adds_bos and self._bos is not None:
            ids.insert(0, self._bos)
        if self._bos is not None and ids[:2] == [self._bos, self._bos]:
            del ids[0]
        return ids
