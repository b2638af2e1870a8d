"""GGUF file -> Hugging Face directory.

Reading order: gguf_file (the bytes), gguf_config and gguf_rope (the shape), gguf_tensors (the weights), vocabulary,
byte_level, sentencepiece_bpe and gguf_tokenizer (the text), safetensors_stream, source and publish (the writing).
"""

import sys
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedConfig

from backend.checkpoint.directory import WEIGHTS, is_ready
from backend.checkpoint.errors import CheckpointError
from backend.checkpoint.gguf_config import architecture, build_config, end_ids
from backend.checkpoint.gguf_file import GgufFile
from backend.checkpoint.gguf_tensors import Output, check_complete, plan_tensors
from backend.checkpoint.gguf_tokenizer import check_loads_alike, check_tokenizer, write_tokenizer
from backend.checkpoint.publish import exclusive, publish
from backend.checkpoint.safetensors_stream import write_float32
from backend.checkpoint.source import FILE, fingerprint, made_from, write_source
from backend.checkpoint.vocabulary import read_vocabulary


def convert(gguf_path: Path, out_dir: Path, progress: bool = True) -> Path:
    """Make `out_dir` a Hugging Face directory with the weights of `gguf_path` in float32; returns `out_dir`.

    Returns at once where `out_dir` is already that; replaces it where it came from another file or an older converter.
    All or nothing, for any number of processes at once. `progress` shows a bar over the tensors on stderr.
    Raises UnsupportedModel or CheckpointError, before it writes anything for all that the header tells.
    """
    gguf = GgufFile(gguf_path)
    config, outputs = _plan(gguf)
    with exclusive(out_dir):
        if is_ready(out_dir) and made_from(out_dir, gguf_path):
            return out_dir
        if out_dir.exists() and any(out_dir.iterdir()) and not (out_dir / FILE).exists():
            raise CheckpointError(f"{out_dir} exists and was not made by this converter; it is left as it is")
        publish(out_dir, lambda work: _write(gguf, config, outputs, work, progress))
    return out_dir


def _plan(gguf: GgufFile) -> tuple[PreTrainedConfig, list[Output]]:
    """All that can be refused is refused here, before any work."""
    arch = architecture(gguf)
    config = build_config(gguf)
    outputs = plan_tensors(gguf, arch, config.num_attention_heads, config.num_key_value_heads)
    check_complete(outputs, _expected(config))
    vocabulary = read_vocabulary(gguf)
    check_tokenizer(vocabulary)
    if len(vocabulary.tokens) > config.vocab_size:
        raise CheckpointError(f"{gguf.path}: {len(vocabulary.tokens)} tokens, but {config.vocab_size} embeddings")
    return config, outputs


def _expected(config: PreTrainedConfig) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the model's weights, from a model without storage."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    return {name: tuple(value.shape) for name, value in model.state_dict().items() if name not in tied}


def _write(gguf: GgufFile, config: PreTrainedConfig, outputs: list[Output], work: Path, progress: bool) -> None:
    write_tokenizer(read_vocabulary(gguf), config.max_position_embeddings, work)
    config.save_pretrained(work)
    check_loads_alike(work)
    _generation(gguf, config).save_pretrained(work)
    name = gguf.path.name
    bar = tqdm(outputs, desc=f"converting {name}", unit="tensor", file=sys.stderr, disable=not progress)
    write_float32(work / WEIGHTS, outputs, bar)
    write_source(work, fingerprint(gguf.path))


def _generation(gguf: GgufFile, config: PreTrainedConfig) -> GenerationConfig:
    return GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=end_ids(gguf), pad_token_id=config.pad_token_id
    )
