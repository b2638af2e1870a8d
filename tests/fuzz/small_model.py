"""A random model of two narrow layers with SmolLM2's tokenizer: every path of the server, in a millisecond a step."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
import transformers

MAX_SEQ_LEN = 256
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def save_small(path: Path, tokenizer_from: Path) -> Path:
    """Write the model with the tokenizer of another directory; returns ``path``."""
    source = transformers.AutoConfig.from_pretrained(tokenizer_from)
    torch.manual_seed(11)
    config = transformers.LlamaConfig(
        vocab_size=source.vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_SEQ_LEN,
        bos_token_id=source.bos_token_id,
        eos_token_id=source.eos_token_id,
        tie_word_embeddings=False,
        initializer_range=0.5,  # so that no two logits are nearly equal
    )
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    for name in TOKENIZER_FILES:
        if (tokenizer_from / name).exists():
            shutil.copy(tokenizer_from / name, path)
    return path
