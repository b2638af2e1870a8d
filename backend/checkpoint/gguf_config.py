"""GGUF metadata -> the configuration object of transformers, and the ids that end a sequence."""

from collections.abc import Callable
from typing import Any

from transformers import Gemma3TextConfig, LlamaConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from backend.checkpoint.errors import CheckpointError, UnsupportedModel
from backend.checkpoint.gguf_file import GgufFile
from backend.checkpoint.gguf_rope import gemma3_rope_parameters, rope_parameters

CONTROL = 3
END_TOKENS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>"),
    *("<|end|>", "<eos>", "</s>"),
)
GEMMA3_27B_LAYERS = 62  # the one size whose query scale is not its head size
GEMMA3_PATTERN = 6


def architecture(gguf: GgufFile) -> str:
    """The GGUF architecture's name. Raises UnsupportedModel unless it is one of `SUPPORTED`."""
    arch = str(gguf.meta.get("general.architecture"))
    if arch not in SUPPORTED:
        raise UnsupportedModel(f"model architecture {arch!r} is not supported (supported: {', '.join(SUPPORTED)})")
    return arch


def build_config(gguf: GgufFile) -> PreTrainedConfig:
    """The model's configuration, float32, ready for `save_pretrained`.

    Raises UnsupportedModel for an architecture, a mixture of experts, a partial rotation or a RoPE scaling that
    transformers' dense class would silently compute otherwise; CheckpointError where a key is missing.
    """
    arch = architecture(gguf)
    try:
        _refuse_what_differs(gguf, arch)
        return SUPPORTED[arch](gguf, arch, _common(gguf, arch))
    except KeyError as error:
        raise CheckpointError(f"{gguf.path} lacks the metadata key {error}") from error


def end_ids(gguf: GgufFile) -> list[int]:
    """All ids that end a sequence: the tokenizer's own first, then the end-of-turn tokens of the vocabulary."""
    meta = gguf.meta
    found = [meta.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    kinds = meta.get("tokenizer.ggml.token_type", [])
    control = {token: i for i, token in enumerate(meta["tokenizer.ggml.tokens"]) if kinds and kinds[i] == CONTROL}
    found += [control.get(token) for token in END_TOKENS]
    return list(dict.fromkeys(i for i in found if i is not None))


def _head_dim(gguf: GgufFile, arch: str) -> int:
    heads, width = gguf.meta[f"{arch}.attention.head_count"], gguf.meta[f"{arch}.embedding_length"]
    return int(gguf.meta.get(f"{arch}.attention.key_length", width // heads))


def _common(gguf: GgufFile, arch: str) -> dict[str, Any]:
    meta = gguf.meta
    heads = meta[f"{arch}.attention.head_count"]
    return {
        "vocab_size": gguf.tensors["token_embd.weight"].shape[0],
        "hidden_size": meta[f"{arch}.embedding_length"],
        "intermediate_size": meta[f"{arch}.feed_forward_length"],
        "num_hidden_layers": meta[f"{arch}.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get(f"{arch}.attention.head_count_kv", heads),
        "head_dim": _head_dim(gguf, arch),
        "max_position_embeddings": meta[f"{arch}.context_length"],
        "rms_norm_eps": meta[f"{arch}.attention.layer_norm_rms_epsilon"],
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "dtype": "float32",
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": meta.get("tokenizer.ggml.padding_token_id"),
    }


def _refuse_what_differs(gguf: GgufFile, arch: str) -> None:
    head_dim = _head_dim(gguf, arch)
    if gguf.meta.get(f"{arch}.expert_count", 0):
        raise UnsupportedModel(f"{arch} with a mixture of experts is not supported (dense models only)")
    if gguf.meta.get(f"{arch}.rope.dimension_count", head_dim) != head_dim:
        raise UnsupportedModel(f"{arch} with a RoPE over a part of the head is not supported")
    if gguf.meta.get(f"{arch}.attention.value_length", head_dim) != head_dim:
        raise UnsupportedModel(f"{arch} with values of another size than the keys is not supported")


def _llama(gguf: GgufFile, arch: str, common: dict[str, Any]) -> PreTrainedConfig:
    return LlamaConfig(
        **common,
        architectures=["LlamaForCausalLM"],
        rope_parameters=rope_parameters(gguf, arch, common["head_dim"]),
        attention_bias="blk.0.attn_q.bias" in gguf.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in gguf.tensors,
    )


def _qwen2(gguf: GgufFile, arch: str, common: dict[str, Any]) -> PreTrainedConfig:
    rope = rope_parameters(gguf, arch, common["head_dim"])
    return Qwen2Config(**common, architectures=["Qwen2ForCausalLM"], rope_parameters=rope)


def _qwen3(gguf: GgufFile, arch: str, common: dict[str, Any]) -> PreTrainedConfig:
    rope = rope_parameters(gguf, arch, common["head_dim"])
    return Qwen3Config(**common, architectures=["Qwen3ForCausalLM"], rope_parameters=rope)


def _gemma3(gguf: GgufFile, arch: str, common: dict[str, Any]) -> PreTrainedConfig:
    layers, head_dim = common["num_hidden_layers"], common["head_dim"]
    is_27b = layers == GEMMA3_27B_LAYERS
    every = gguf.meta.get(f"{arch}.attention.sliding_window_pattern", GEMMA3_PATTERN)
    return Gemma3TextConfig(
        **common,
        architectures=["Gemma3ForCausalLM"],
        rope_parameters=gemma3_rope_parameters(gguf, head_dim),
        query_pre_attn_scalar=common["hidden_size"] // common["num_attention_heads"] if is_27b else head_dim,
        sliding_window=gguf.meta[f"{arch}.attention.sliding_window"],
        layer_types=["sliding_attention" if (i + 1) % every else "full_attention" for i in range(layers)],
        final_logit_softcapping=gguf.meta.get(f"{arch}.final_logit_softcapping"),
    )


SUPPORTED: dict[str, Callable[[GgufFile, str, dict[str, Any]], PreTrainedConfig]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
}
