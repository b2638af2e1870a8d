"""What a ready Hugging Face directory holds. Imports nothing heavy: the cached path must be fast."""

import json
from pathlib import Path

from backend.checkpoint.errors import CheckpointError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


def check_directory(directory: Path) -> None:
    """Raise CheckpointError, naming what is missing, unless config, tokenizer and all safetensors are there."""
    missing = [] if (directory / "config.json").is_file() else ["config.json"]
    if not any((directory / name).is_file() for name in TOKENIZERS):
        missing.append("a tokenizer file (" + ", ".join(TOKENIZERS) + ")")
    missing += [name for name in _weights(directory) if not (directory / name).is_file()]
    if missing:
        raise CheckpointError(f"{directory} is not a ready Hugging Face directory: it lacks {', '.join(missing)}")


def is_ready(directory: Path) -> bool:
    """Whether `check_directory` has nothing to say."""
    try:
        check_directory(directory)
    except CheckpointError:
        return False
    return True


def _weights(directory: Path) -> list[str]:
    index = directory / INDEX
    if (directory / WEIGHTS).is_file() or not index.is_file():
        return [WEIGHTS]
    try:
        return sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{index} cannot be read ({error})") from error
