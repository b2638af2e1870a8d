"""The supported model families: one entry each, saying how it differs from Llama."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from backend.model.config_file import ConfigFile
from backend.model.rope_parsing import LAYER_TYPES, RopeSource

FULL, SLIDING = LAYER_TYPES


def _all_full(_file: ConfigFile, num_layers: int) -> list[str]:
    return [FULL] * num_layers


def _all_alike(file: ConfigFile, num_layers: int) -> list[str]:
    """Mistral: every layer slides, unless ``sliding_window`` is null."""
    if file.has("layer_types"):
        raise file.error("layer_types", "no such key: all layers of a Mistral are alike")
    return [FULL if file.is_null("sliding_window") else SLIDING] * num_layers


def _sliding_after(file: ConfigFile, num_layers: int) -> list[str]:
    """Qwen: layers from ``max_window_layers`` on slide, where ``use_sliding_window`` says so."""
    if not file.flag("use_sliding_window", False) or file.is_null("sliding_window"):
        return [FULL] * num_layers
    first_sliding = file.integer("max_window_layers", 28, minimum=0)
    return _listed(file, [FULL if layer < first_sliding else SLIDING for layer in range(num_layers)])


def _interleaved(file: ConfigFile, num_layers: int) -> list[str]:
    """Gemma 3: every sixth layer sees everything, the others slide."""
    period = file.integer("sliding_window_pattern", file.integer("_sliding_window_pattern", 6))
    return _listed(file, [SLIDING if (layer + 1) % period else FULL for layer in range(num_layers)])


def _listed(file: ConfigFile, derived: list[str]) -> list[str]:
    """The layer types as the file lists them, or else as derived."""
    listed = list(file.texts("layer_types")) or derived
    if len(listed) != len(derived) or not set(listed) <= set(LAYER_TYPES):
        raise file.error("layer_types", f"{len(derived)} entries, each one of {', '.join(LAYER_TYPES)}")
    return listed


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """How the models of one architecture read their config.json and compute. The defaults are Llama's.

    A bias is there always, never, or as the key in config.json says that stands in its place.
    """

    qkv_bias: bool | str = False
    attention_output_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: bool = False
    sandwich_norms: bool = False
    norm_offset: float = 0.0
    scaled_embedding: bool = False  # by the square root of hidden_size
    default_query_scalar: int | None = None  # None: attention is scaled by head_dim, not query_pre_attn_scalar
    # Whether the two logit caps are read. (transformers' own Gemma 3 leaves the attention cap out of its
    # computation; no published Gemma 3 sets it, and where one is set it is applied here.)
    softcaps: bool = False
    tied_by_default: bool = False
    default_head_dim: int | None = None  # None: hidden_size / num_attention_heads
    activation_key: str = "hidden_act"
    default_activation: str = "silu"
    layer_types: Callable[[ConfigFile, int], list[str]] = _all_full
    ropes: Mapping[str, RopeSource] = field(default_factory=lambda: dict.fromkeys(LAYER_TYPES, RopeSource()))


FAMILIES: Mapping[str, Family] = {
    "LlamaForCausalLM": Family(qkv_bias="attention_bias", attention_output_bias="attention_bias", mlp_bias="mlp_bias"),
    "MistralForCausalLM": Family(layer_types=_all_alike),
    "Qwen2ForCausalLM": Family(qkv_bias=True, layer_types=_sliding_after),
    "Qwen3ForCausalLM": Family(
        qkv_bias="attention_bias",
        attention_output_bias="attention_bias",
        qk_norm=True,
        default_head_dim=128,
        layer_types=_sliding_after,
    ),
    "Gemma3ForCausalLM": Family(
        qkv_bias="attention_bias",
        attention_output_bias="attention_bias",
        qk_norm=True,
        sandwich_norms=True,
        norm_offset=1.0,
        scaled_embedding=True,
        default_query_scalar=256,
        softcaps=True,
        tied_by_default=True,
        default_head_dim=256,
        activation_key="hidden_activation",
        default_activation="gelu_pytorch_tanh",
        layer_types=_interleaved,
        ropes={
            FULL: RopeSource(default_theta=1_000_000.0),
            SLIDING: RopeSource(theta_key="rope_local_base_freq", shared=False),
        },
    ),
}
