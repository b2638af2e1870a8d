"""The tokenizer of a model directory, as the JSON that the tokenizers package reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backend.errors import ConfigError


def tokenizer_json(directory: Path) -> str:
    """Content of ``tokenizer.json``; where there is only ``tokenizer.model``, what transformers converts it to.

    Raises ConfigError if the directory holds no tokenizer.
    """
    file = directory / "tokenizer.json"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    if not (directory / "tokenizer.model").is_file():
        raise ConfigError(f"no tokenizer.json and no tokenizer.model in {str(directory)!r}")
    from transformers import AutoTokenizer  # seconds to import, and most directories do not need it

    text: str = AutoTokenizer.from_pretrained(directory, local_files_only=True).backend_tokenizer.to_str()
    return text


def tokenizer_config(directory: Path) -> dict[str, Any]:
    """Content of ``tokenizer_config.json``; empty if there is none."""
    file = directory / "tokenizer_config.json"
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return content
