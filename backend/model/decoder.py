"""The decoder: one forward pass for every family, over a paged pool."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from backend.model.batch import StepInputs
from backend.model.config import LayerKind, ModelConfig
from backend.model.rope import RopeConfig, Rotation, rotation
from backend.model.weights import DecoderWeights, LayerWeights
from kernels.operations import Operations


@dataclass(frozen=True, slots=True)
class _Layer:
    """What one layer computes with, in one step."""

    index: int
    kind: LayerKind
    weights: LayerWeights
    rotation: Rotation


class Decoder:
    """A decoder-only transformer with grouped-query attention and a gated MLP.

    What families differ in is in the config; no family is named here.

    Sharded over ``n`` ranks, a model would be cut at two boundaries and meet at two sums. Heads: rank ``r`` keeps
    its ``num_heads / n`` query heads and ``num_kv_heads / n`` key heads, so those rows of each third of ``qkv``,
    those columns of ``attention_output`` and that part of the pool. Intermediate size: it keeps its rows of each
    half of ``gate_up`` and those columns of ``down``. The outputs of ``attention_output`` and ``down`` are then
    partial sums, to be added up over the ranks before the norm or the residual that follows. Everything else is
    the same on every rank.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: DecoderWeights,
        operations: Operations,
        before_layer: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep the parts; weights must be of this config, on one device, and packed by these operations.

        before_layer: called before each layer is computed; what it raises ends the step.
        """
        self.config = config
        self._before_layer = before_layer
        self._weights = weights
        self._operations = operations
        device = weights.embedding.device
        self._frequencies = {
            rope: rope.frequencies(config.head_dim).to(device) for rope in {kind.rope for kind in config.layer_kinds}
        }
        self._next_norms = [*(layer.attention_norm for layer in weights.layers[1:]), weights.final_norm]
        # Rounded to the weights' dtype, as the models that scale their embedding were trained.
        self._embedding_scale = torch.tensor(config.embedding_scale, dtype=weights.embedding.dtype, device=device)

    @torch.inference_mode()
    def forward(self, inputs: StepInputs, pool: Tensor) -> Tensor:
        """Compute a step's rows, write their keys and values into the pool, and return the logits asked for.

        Args:
            inputs: the batch.
            pool: ``[num_blocks, num_layers, 2 (key, value), num_kv_heads, block_size, head_dim]``; changed in
                the slots of ``inputs.slot_mapping`` only.

        Returns:
            float32 ``[R, vocab_size]``, row ``i`` for row ``inputs.logit_rows[i]`` of the batch.
        """
        hidden, rotations = self.embed(inputs.token_ids), self.rotations(inputs.positions)
        with self._operations.workspace():
            normed = self.run_layers(hidden, rotations, inputs, pool, inputs.logit_rows)
        return self.logits(normed)

    def embed(self, token_ids: Tensor) -> Tensor:
        """int64 ``[T]`` -> ``[T, E]``, the residual stream before the first layer."""
        hidden = F.embedding(token_ids, self._weights.embedding)
        return hidden if self.config.embedding_scale == 1.0 else hidden * self._embedding_scale

    def rotations(self, positions: Tensor) -> dict[RopeConfig, Rotation]:
        """Of rows at these positions, int64 ``[T]``, for each kind of rotary embedding that the model has."""
        return {
            rope: rotation(frequencies, rope.attention_factor, positions)
            for rope, frequencies in self._frequencies.items()
        }

    def run_layers(
        self,
        hidden: Tensor,
        rotations: Mapping[RopeConfig, Rotation],
        inputs: StepInputs,
        pool: Tensor,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """``[T, E]`` -> ``[T, E]``, normed for the head. Of the inputs, only what attention needs is read.

        wanted: int64 ``[R]``, the rows to return, in this order; all, where it is None. Of the last layer, other rows
        have only their keys, values and attention computed, and without any wanted row only their keys and values.
        """
        layers = self._layers(rotations)
        normed = self._norm(hidden, layers[0].weights.attention_norm)
        # Each addition to the residual stream comes with the norm of what reads it next.
        for layer, next_norm in zip(layers, self._next_norms, strict=True):
            self._before_layer()
            queries = self._queries(normed, layer, inputs, pool)
            rows = wanted if layer is layers[-1] else None
            if rows is not None and not len(rows):
                return hidden[rows]
            attended = self._attended(queries, layer, inputs, pool)
            if rows is not None:
                attended, hidden = attended[rows], hidden[rows]
            normed, hidden = self._add_norm(self._output(attended, layer.weights), hidden, layer.weights.mlp_norm)
            normed, hidden = self._add_norm(self._mlp(normed, layer.weights), hidden, next_norm)
        return normed

    def _layers(self, rotations: Mapping[RopeConfig, Rotation]) -> list[_Layer]:
        parts = zip(self.config.layer_kinds, self._weights.layers, strict=True)
        return [_Layer(index, kind, weights, rotations[kind.rope]) for index, (kind, weights) in enumerate(parts)]

    def _queries(self, normed: Tensor, layer: _Layer, inputs: StepInputs, pool: Tensor) -> Tensor:
        """``[T, E]`` -> ``[T, Hq, D]``, rotated; keys and values go into the pool."""
        config, weights, run = self.config, layer.weights, self._operations
        qkv = run.linear(normed, weights.qkv, weights.qkv_bias)
        return run.rope_and_write(
            qkv,
            layer.rotation.cos,
            layer.rotation.sin,
            pool,
            layer.index,
            inputs.slot_mapping,
            weights.query_norm,
            weights.key_norm,
            config.rms_norm_eps,
            config.norm_offset,
        )

    def _attended(self, queries: Tensor, layer: _Layer, inputs: StepInputs, pool: Tensor) -> Tensor:
        """``[T, Hq, D]`` -> ``[T, Hq, D]``, over what the pool holds by now."""
        config = self.config
        return self._operations.paged_attention(
            queries,
            pool,
            layer.index,
            inputs.block_tables,
            inputs.query_start,
            inputs.kv_lengths,
            scale=config.attention_scale,
            window=layer.kind.window,
            softcap=config.attention_softcap,
        )

    def _output(self, attended: Tensor, weights: LayerWeights) -> Tensor:
        linear = self._operations.linear
        output = linear(attended.flatten(1), weights.attention_output, weights.attention_output_bias)
        return self._optional_norm(output, weights.attention_output_norm)

    def _mlp(self, normed: Tensor, weights: LayerWeights) -> Tensor:
        run = self._operations
        inner = run.gated_linear(normed, weights.gate_up, weights.gate_up_bias, self.config.activation)
        output = run.linear(inner, weights.down, weights.down_bias)
        return self._optional_norm(output, weights.mlp_output_norm)

    def logits(self, normed: Tensor) -> Tensor:
        """``[R, E]`` -> float32 ``[R, vocab_size]``."""
        logits = self._operations.linear(normed, self._weights.head, None).float()
        cap = self.config.final_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._operations.rms_norm(x, weight, self.config.rms_norm_eps, self.config.norm_offset)

    def _add_norm(self, x: Tensor, hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The norm of ``hidden + x``, and the sum, the new residual stream."""
        return self._operations.add_rms_norm(x, hidden, weight, self.config.rms_norm_eps, self.config.norm_offset)

    def _optional_norm(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return x if weight is None else self._norm(x, weight)
