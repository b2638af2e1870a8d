"""What a decoder must know of its model: ``ModelConfig``, read from a Hugging Face model directory."""

from dataclasses import dataclass
from pathlib import Path

from backend.model.config_file import ConfigFile
from backend.model.errors import UnsupportedModel
from backend.model.families import FAMILIES, SLIDING, Family
from backend.model.rope import RopeConfig
from backend.model.rope_parsing import parse_rope

_DEFAULT_WINDOW = 4096  # of every family that slides, in files that do not say
_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerKind:
    """What differs between the layers of one model."""

    window: int | None  # width of the sliding window in tokens; None sees everything before
    rope: RopeConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The shape and the arithmetic of a decoder, whatever its family."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    layer_kinds: tuple[LayerKind, ...]  # one per layer
    activation: str  # "silu" or "gelu_tanh"
    rms_norm_eps: float
    norm_offset: float  # added to every norm's weight
    qk_norm: bool  # queries and keys are normalised per head before the rotation
    sandwich_norms: bool  # attention and MLP are normalised after, too
    qkv_bias: bool
    attention_output_bias: bool
    mlp_bias: bool
    tie_word_embeddings: bool  # the head is the embedding
    embedding_scale: float  # on embeddings as they enter, not on a tied head
    attention_scale: float  # on q @ k
    attention_softcap: float | None
    final_softcap: float | None
    eos_token_ids: tuple[int, ...]  # ascending; of config.json and generation_config.json together

    @classmethod
    def from_directory(cls, path: str | Path) -> "ModelConfig":
        """Read ``config.json``, and ``generation_config.json`` where there is one.

        Raises:
            UnsupportedModel: an architecture or a feature that the decoder does not compute.
            ModelConfigError: a value is missing or out of range; the message names file, key and value.
        """
        directory = Path(path)
        file = ConfigFile.load(directory / "config.json")
        generation = directory / "generation_config.json"
        eos = set(file.integers("eos_token_id"))
        if generation.exists():
            eos |= set(ConfigFile.load(generation).integers("eos_token_id"))
        architecture = _architecture(file)
        return _parse(file, architecture, FAMILIES[architecture], tuple(sorted(eos)))


def _architecture(file: ConfigFile) -> str:
    named = file.texts("architectures")
    for architecture in named:
        if architecture in FAMILIES:
            return architecture
    raise UnsupportedModel(
        f"{file.where}: architecture {', '.join(named) or 'not named'} is not supported; "
        f"supported: {', '.join(FAMILIES)}"
    )


def _parse(file: ConfigFile, architecture: str, family: Family, eos: tuple[int, ...]) -> ModelConfig:
    _refuse_unsupported(file)
    hidden_size, num_layers = file.integer("hidden_size"), file.integer("num_hidden_layers")
    num_heads = file.integer("num_attention_heads")
    head_dim = _head_dim(file, family, hidden_size, num_heads)
    return ModelConfig(
        architecture=architecture,
        vocab_size=file.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=file.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(file, num_heads),
        head_dim=head_dim,
        max_position_embeddings=file.integer("max_position_embeddings"),
        layer_kinds=_layer_kinds(file, family, num_layers),
        activation=_activation(file, family),
        rms_norm_eps=file.number("rms_norm_eps", 1e-6),
        norm_offset=family.norm_offset,
        qk_norm=family.qk_norm,
        sandwich_norms=family.sandwich_norms,
        qkv_bias=_bias(file, family.qkv_bias),
        attention_output_bias=_bias(file, family.attention_output_bias),
        mlp_bias=_bias(file, family.mlp_bias),
        tie_word_embeddings=file.flag("tie_word_embeddings", family.tied_by_default),
        embedding_scale=hidden_size**0.5 if family.scaled_embedding else 1.0,
        attention_scale=_attention_scale(file, family, head_dim),
        attention_softcap=file.optional_number("attn_logit_softcapping") if family.softcaps else None,
        final_softcap=file.optional_number("final_logit_softcapping") if family.softcaps else None,
        eos_token_ids=eos,
    )


def _refuse_unsupported(file: ConfigFile) -> None:
    if file.has("quantization_config"):
        raise UnsupportedModel(f"{file.where}: quantization_config is set; quantized weights are not supported")
    if file.flag("use_bidirectional_attention", False):
        raise UnsupportedModel(f"{file.where}: use_bidirectional_attention = True; only causal models are served")


def _head_dim(file: ConfigFile, family: Family, hidden_size: int, num_heads: int) -> int:
    head_dim = file.integer("head_dim", family.default_head_dim or max(hidden_size // num_heads, 1))
    if head_dim % 2:
        raise file.error("head_dim", f"an even number (hidden_size / num_attention_heads = {head_dim})")
    return head_dim


def _num_kv_heads(file: ConfigFile, num_heads: int) -> int:
    num_kv_heads = file.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise file.error("num_key_value_heads", f"a divisor of num_attention_heads = {num_heads}")
    return num_kv_heads


def _activation(file: ConfigFile, family: Family) -> str:
    name = file.text(family.activation_key, family.default_activation)
    if name not in _ACTIVATIONS:
        raise file.error(family.activation_key, f"one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _bias(file: ConfigFile, rule: bool | str) -> bool:
    return file.flag(rule, False) if isinstance(rule, str) else rule


def _attention_scale(file: ConfigFile, family: Family, head_dim: int) -> float:
    if family.default_query_scalar is None:
        return float(head_dim**-0.5)
    return float(file.number("query_pre_attn_scalar", family.default_query_scalar) ** -0.5)


def _layer_kinds(file: ConfigFile, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    types = family.layer_types(file, num_layers)
    kinds = {
        layer_type: LayerKind(
            window=_window(file) if layer_type == SLIDING else None,
            rope=parse_rope(file, layer_type, family.ropes[layer_type]),
        )
        for layer_type in sorted(set(types))
    }
    return tuple(kinds[layer_type] for layer_type in types)


def _window(file: ConfigFile) -> int:
    if file.is_null("sliding_window"):
        raise file.error("sliding_window", "an integer >= 1, as some layers slide")
    return file.integer("sliding_window", _DEFAULT_WINDOW)
