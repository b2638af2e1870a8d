"""Tiny random models of every family, saved by transformers, whose logits are the oracle."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

# Small enough to run in milliseconds, odd enough that no two sizes agree by chance.
_SIZES = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 64}


@dataclass(frozen=True)
class Tiny:
    family: str  # transformers' class names begin with it
    options: dict[str, Any] = field(default_factory=dict)
    save: dict[str, Any] = field(default_factory=dict)


TINY = {
    "llama-tied": Tiny("Llama", {"tie_word_embeddings": True}),
    "llama-untied-sharded": Tiny("Llama", {"tie_word_embeddings": False}, {"max_shard_size": "40KB"}),
    "llama-biases": Tiny("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-no-groups": Tiny("Llama", {"num_key_value_heads": 6}),
    "llama-llama3-rope": Tiny("Llama", {"rope_parameters": _LLAMA3}),
    "llama-linear-rope": Tiny(
        "Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}}
    ),
    "llama-yarn-rope": Tiny("Llama", {"rope_parameters": _YARN}),
    "llama-yarn-rope-tuned": Tiny(
        "Llama",
        {
            "rope_parameters": _YARN
            | {"beta_fast": 8.0, "beta_slow": 2.0, "truncate": False, "mscale": 1.4, "mscale_all_dim": 0.6}
        },
    ),
    # The base is so low that the ramp's end lies beyond the last frequency and is clamped.
    "llama-yarn-rope-clamped": Tiny(
        "Llama", {"rope_parameters": _YARN | {"rope_theta": 5.0, "original_max_position_embeddings": 200}}
    ),
    "mistral-window": Tiny("Mistral", {"sliding_window": 7}),
    "mistral-no-window": Tiny("Mistral", {"sliding_window": None}),
    "qwen2": Tiny("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": Tiny("Qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "qwen3": Tiny("Qwen3", {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}),
    "gemma3": Tiny(
        "Gemma3",
        {
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "query_pre_attn_scalar": 20,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 2000.0, "factor": 2.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        },
    ),
    # The CPU's int16 pool takes heads of whole sixty-fours.
    "qwen3-heads-of-64": Tiny("Qwen3", {"head_dim": 64}),
    "mistral-heads-of-64": Tiny("Mistral", {"head_dim": 64, "sliding_window": 37, "num_key_value_heads": 1}),
    "gemma3-final-cap": Tiny("Gemma3", {"final_logit_softcapping": 3.0, "sliding_window": 8, "layer_types": None}),
}


@dataclass(frozen=True)
class Saved:
    path: Path
    oracle: transformers.PreTrainedModel

    def logits(self, tokens: list[int]) -> Tensor:
        """Logits of every position, ``[len(tokens), vocab]``."""
        with torch.inference_mode():
            return self.oracle(torch.tensor([tokens])).logits[0]


def save_tiny(name: str, path: Path) -> Saved:
    """Make the model and save it; weights are wide, so that a wrong window or norm shows in the logits."""
    tiny = TINY[name]
    torch.manual_seed(sorted(TINY).index(name))
    config_name = f"{tiny.family}TextConfig" if tiny.family == "Gemma3" else f"{tiny.family}Config"
    config = getattr(transformers, config_name)(**(_SIZES | tiny.options))
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{tiny.family}ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(-0.6, 0.9)
            else:
                parameter.normal_(std=2.0 / parameter.shape[1] ** 0.5)
    model.save_pretrained(path, **tiny.save)
    return Saved(path, model)
