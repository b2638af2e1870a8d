"""A decoder's weights: which tensors a config asks for, and how they are laid out for computing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backend.model.config import ModelConfig
from backend.model.weight_files import WeightFiles
from kernels.linear.reference import pack_linear

Shapes = dict[str, tuple[int, ...]]
Read = Callable[[str], Tensor]
Packed = Any  # what the operations' ``pack_linear`` makes of a matrix; only their ``linear`` knows it
Pack = Callable[[Tensor], Packed]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerWeights:
    """One layer. ``E`` is hidden_size, ``I`` intermediate_size; a matrix is ``[out, in]``, as stored, then packed."""

    attention_norm: Tensor  # [E]
    qkv: Packed  # [(num_heads + 2 * num_kv_heads) * head_dim, E]: all queries, then all keys, then all values
    qkv_bias: Tensor | None
    query_norm: Tensor | None  # [head_dim]
    key_norm: Tensor | None  # [head_dim]
    attention_output: Packed  # [E, num_heads * head_dim]
    attention_output_bias: Tensor | None
    attention_output_norm: Tensor | None  # [E], of models with sandwich norms
    mlp_norm: Tensor  # [E]
    gate_up: Packed  # [2 * I, E]: the gate first
    gate_up_bias: Tensor | None
    down: Packed  # [E, I]
    down_bias: Tensor | None
    mlp_output_norm: Tensor | None  # [E], of models with sandwich norms


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderWeights:
    """All weights of a decoder, of one dtype and on one device."""

    embedding: Tensor  # [vocab_size, E]
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor  # [E]
    head: Packed  # [vocab_size, E]; of the embedding itself where they are tied


def load_weights(
    path: str | Path,
    config: ModelConfig,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    progress: bool = True,
    pack: Pack = pack_linear,
) -> DecoderWeights:
    """Read a model directory's safetensors files.

    Args:
        path: the directory.
        config: its config.
        dtype: what the weights are converted to, and what the decoder computes its hidden states in.
        device: where they go.
        progress: show a bar on standard error.
        pack: the ``pack_linear`` of the operations that will compute; called on each matrix as soon as it is read, so
            that no more than one is held twice.

    Raises:
        WeightsError: a tensor is missing, misshapen or not floating-point; checked before any is read.
    """
    files, shapes = WeightFiles(path), expected_shapes(config)
    files.check(shapes)
    with _bar(len(shapes), progress) as advance:

        def read(name: str) -> Tensor:
            advance()
            tensor = files.read(name, dtype, torch.device(device))
            return tensor if tensor.dim() > 1 else _owned(tensor)

        embedding = _owned(read("model.embed_tokens.weight"))
        return DecoderWeights(
            embedding=embedding,
            layers=tuple(_layer(read, pack, shapes, f"model.layers.{i}.") for i in range(config.num_layers)),
            final_norm=read("model.norm.weight"),
            head=pack(embedding if config.tie_word_embeddings else read("lm_head.weight")),
        )


def _owned(tensor: Tensor) -> Tensor:
    """What stays as it was read, in memory of its own: a part of a mapped file holds all of the file's pages."""
    return tensor.clone() if tensor.is_cpu else tensor


@contextmanager
def _bar(total: int, shown: bool) -> Iterator[Callable[[], object]]:
    """A progress bar of so many tensors; what advances it."""
    if not shown:
        yield lambda: None
        return
    # Imported here: scripts/gpu_check must not need it.
    from tqdm import tqdm

    with tqdm(total=total, desc="weights", unit="tensor") as bar:
        yield bar.update


def expected_shapes(config: ModelConfig) -> Shapes:
    """Every tensor that a checkpoint of this config must hold, by its Hugging Face name."""
    shapes: Shapes = {"model.embed_tokens.weight": (config.vocab_size, config.hidden_size)}
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        shapes |= {prefix + name: shape for name, shape in _layer_shapes(config).items()}
    shapes["model.norm.weight"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    return shapes


def _layer_shapes(config: ModelConfig) -> Shapes:
    hidden, inner = config.hidden_size, config.intermediate_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: Shapes = {f"{norm}.weight": (hidden,) for norm in _norm_names(config)}
    if config.qk_norm:
        shapes |= {f"self_attn.{norm}.weight": (config.head_dim,) for norm in ("q_norm", "k_norm")}
    for name, out_size, in_size, has_bias in (
        ("self_attn.q_proj", q_size, hidden, config.qkv_bias),
        ("self_attn.k_proj", kv_size, hidden, config.qkv_bias),
        ("self_attn.v_proj", kv_size, hidden, config.qkv_bias),
        ("self_attn.o_proj", hidden, q_size, config.attention_output_bias),
        ("mlp.gate_proj", inner, hidden, config.mlp_bias),
        ("mlp.up_proj", inner, hidden, config.mlp_bias),
        ("mlp.down_proj", hidden, inner, config.mlp_bias),
    ):
        shapes[f"{name}.weight"] = (out_size, in_size)
        if has_bias:
            shapes[f"{name}.bias"] = (out_size,)
    return shapes


def _norm_names(config: ModelConfig) -> tuple[str, ...]:
    plain = ("input_layernorm", "post_attention_layernorm")
    sandwich = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
    return plain + sandwich if config.sandwich_norms else plain


def _layer(read: Read, pack: Pack, shapes: Shapes, prefix: str) -> LayerWeights:
    def tensor(name: str) -> Tensor | None:
        return read(prefix + name) if prefix + name in shapes else None

    def fused(kind: str, *names: str) -> Tensor | None:
        parts = [part for name in names if (part := tensor(f"{name}.{kind}")) is not None]
        return torch.cat(parts) if parts else None

    def needed(value: Tensor | None) -> Tensor:
        assert value is not None  # expected_shapes names it for every config
        return value

    qkv = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    gate_up = ("mlp.gate_proj", "mlp.up_proj")
    sandwich = prefix + "pre_feedforward_layernorm.weight" in shapes
    after_attention = needed(tensor("post_attention_layernorm.weight"))
    # Llama calls the norm before the MLP "post attention"; with sandwich norms that name means what it says.
    before_mlp = needed(tensor("pre_feedforward_layernorm.weight")) if sandwich else after_attention
    return LayerWeights(
        attention_norm=needed(tensor("input_layernorm.weight")),
        qkv=pack(needed(fused("weight", *qkv))),
        qkv_bias=fused("bias", *qkv),
        query_norm=tensor("self_attn.q_norm.weight"),
        key_norm=tensor("self_attn.k_norm.weight"),
        attention_output=pack(needed(tensor("self_attn.o_proj.weight"))),
        attention_output_bias=tensor("self_attn.o_proj.bias"),
        attention_output_norm=after_attention if sandwich else None,
        mlp_norm=before_mlp,
        gate_up=pack(needed(fused("weight", *gate_up))),
        gate_up_bias=fused("bias", *gate_up),
        down=pack(needed(tensor("mlp.down_proj.weight"))),
        down_bias=tensor("mlp.down_proj.bias"),
        mlp_output_norm=tensor("post_feedforward_layernorm.weight"),
    )
