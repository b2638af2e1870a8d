"""GGUF vocabulary -> tokenizer.json, tokenizer_config.json and the chat template."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer

from backend.checkpoint.byte_level import build_byte_level, shape_of
from backend.checkpoint.errors import CheckpointError, UnsupportedModel
from backend.checkpoint.sentencepiece_bpe import build_sentencepiece
from backend.checkpoint.vocabulary import Vocabulary

BUILDERS = {"gpt2": build_byte_level, "llama": build_sentencepiece}
PROBE = "Hello, world!  It's 2024:\n\n\tdef f(x):\n        return x**2  # naïve café — Привет, 你好世界 👩‍👩‍👧 1234567"


def check_tokenizer(vocabulary: Vocabulary) -> None:
    """Raise UnsupportedModel for a tokenizer model or a kind of pre-tokenization that is not known; builds nothing."""
    if vocabulary.model not in BUILDERS:
        raise UnsupportedModel(f"tokenizer {vocabulary.model!r} is not supported (supported: {', '.join(BUILDERS)})")
    if vocabulary.model == "gpt2":
        shape_of(vocabulary)


def build_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """The whole tokenizer, BOS and EOS included where the file asks for them.

    Raises UnsupportedModel as `check_tokenizer` does, CheckpointError for a vocabulary that contradicts itself.
    """
    check_tokenizer(vocabulary)
    tokenizer = BUILDERS[vocabulary.model](vocabulary)
    tokenizer.post_processor = _post_processor(vocabulary)
    return tokenizer


def _post_processor(vocabulary: Vocabulary) -> Any:
    bos, eos = (vocabulary.special(name) if on else None for name, on in _wanted(vocabulary).items())
    single = f"{bos + ':0 ' if bos else ''}$A:0{' ' + eos + ':0' if eos else ''}"
    second = f"{bos + ':1 ' if bos else ''}$B:1{' ' + eos + ':1' if eos else ''}"
    ids = [(token, vocabulary.tokens.index(token)) for token in (bos, eos) if token]
    return processors.TemplateProcessing(single=single, pair=f"{single} {second}", special_tokens=ids)


def _wanted(vocabulary: Vocabulary) -> dict[str, bool]:
    return {"bos": vocabulary.add_bos, "eos": vocabulary.add_eos}


def write_tokenizer(vocabulary: Vocabulary, max_length: int, out_dir: Path) -> None:
    """Write the tokenizer's files. Raises UnsupportedModel as `build_tokenizer` does."""
    build_tokenizer(vocabulary).save(str(out_dir / "tokenizer.json"), pretty=False)
    text = json.dumps(_settings(vocabulary, max_length), indent=2, ensure_ascii=False)
    (out_dir / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
    if vocabulary.chat_template is not None:
        (out_dir / "chat_template.jinja").write_text(vocabulary.chat_template, encoding="utf-8")


def _settings(vocabulary: Vocabulary, max_length: int) -> dict[str, Any]:
    specials = {f"{name}_token": vocabulary.special(name) for name in ("bos", "eos", "unk", "pad")}
    return specials | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": vocabulary.add_bos,
        "add_eos_token": vocabulary.add_eos,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
    }


def check_loads_alike(out_dir: Path) -> None:
    """Raise CheckpointError unless AutoTokenizer gives the same ids as tokenizer.json.

    transformers rebuilds some families' tokenizers from a class of its own (qwen2's), with that class's splits.
    """
    ours = Tokenizer.from_file(str(out_dir / "tokenizer.json")).encode(PROBE).ids
    if AutoTokenizer.from_pretrained(out_dir)(PROBE)["input_ids"] != ours:
        raise CheckpointError("transformers loads this tokenizer as another one; the file's pre-tokenizer is unusual")
