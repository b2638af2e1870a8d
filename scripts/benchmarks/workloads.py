"""The workloads that `scripts/bench` compares engines on, drawn from a seed; token ids, so all compute the same."""

from __future__ import annotations

import json
import random
from pathlib import Path

Request = tuple[list[int], int]
"""Prompt ids, and tokens to generate."""

VOCABULARY = range(100, 40_000)
"""Ordinary tokens of every vocabulary that is served here."""


def make_workloads(seed: int) -> dict[str, list[Request]]:
    """Five kinds of load.

    mixed32: prompts of 32 to 256 tokens and outputs of 32 to 128, all there at once. single: one stream. prefix16: a
    shared prefix of 1,024 tokens and short answers. long: one prompt of 4,096 tokens, 64 more. long_first: another
    such prompt, and its first token only.
    """
    source = random.Random(seed)

    def text(length: int) -> list[int]:
        return source.choices(VOCABULARY, k=length)

    prefix = text(1024)
    return {
        "mixed32": [(text(source.randint(32, 256)), source.randint(32, 128)) for _ in range(32)],
        "single": [(text(64), 128)],
        "prefix16": [(prefix + text(source.randint(4, 32)), source.randint(8, 16)) for _ in range(16)],
        "long": [(text(4096), 64)],
        "long_first": [(text(4096), 1)],
    }


def write(path: Path, seed: int) -> None:
    """As a JSON file."""
    path.write_text(json.dumps(make_workloads(seed)))
