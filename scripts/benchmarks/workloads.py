"""The workloads that `scripts/bench` compares engines on, drawn from a seed; token ids, so all compute the same."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

Request = tuple[list[int], int]
"""Prompt ids, and tokens to generate."""

VOCABULARY = range(100, 40_000)
"""Ordinary tokens of every vocabulary that is served here."""


def words(tokenizer: Tokenizer) -> list[int]:
    """The ordinary tokens that are a whole word of Latin letters after a space.

    A text of nothing else is read as the same tokens again, so that a server that takes text has as many to compute as
    an engine that takes tokens. Of tokens drawn at large a text has some five per cent more.
    """
    texts = {token: tokenizer.decode([token]) for token in VOCABULARY if token < tokenizer.get_vocab_size()}
    found = [token for token, text in texts.items() if re.fullmatch(" [A-Za-z]+", text)]
    return [token for token in found if tokenizer.encode(texts[token], add_special_tokens=False).ids == [token]]


def make_workloads(seed: int, vocabulary: Sequence[int] = VOCABULARY) -> dict[str, list[Request]]:
    """Five kinds of load, of these tokens.

    mixed32: prompts of 32 to 256 tokens and outputs of 32 to 128, all there at once. single: one stream. prefix16: a
    shared prefix of 1,024 tokens and short answers. long: one prompt of 4,096 tokens, 64 more. long_first: another
    such prompt, and its first token only.
    """
    source = random.Random(seed)

    def text(length: int) -> list[int]:
        return source.choices(vocabulary, k=length)

    prefix = text(1024)
    return {
        "mixed32": [(text(source.randint(32, 256)), source.randint(32, 128)) for _ in range(32)],
        "single": [(text(64), 128)],
        "prefix16": [(prefix + text(source.randint(4, 32)), source.randint(8, 16)) for _ in range(16)],
        "long": [(text(4096), 64)],
        "long_first": [(text(4096), 1)],
    }


def write(path: Path, seed: int, tokenizer: Tokenizer | None = None) -> None:
    """As a JSON file; with a tokenizer, of its words."""
    path.write_text(json.dumps(make_workloads(seed, words(tokenizer) if tokenizer else VOCABULARY)))
