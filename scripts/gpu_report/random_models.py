"""Models with random weights in real shapes, and in toy ones; their pools and step inputs."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from kernel_report.work import LLAMA, QWEN, Model
from torch import Tensor

from backend.executor.accelerator import Accelerator
from backend.executor.device import Device, HostDevice
from backend.executor.gpu import Decoders
from backend.model.batch import StepInputs
from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.weights import DecoderWeights, load_weights
from kernels.launch_operations import decode_operations, mixed_operations

from .measure import Bench

BLOCK_SIZE = 16
TOY = replace(LLAMA, name="toy", layers=2, hidden=64, inner=96, heads=4, kv_heads=2, size=16, vocab=200)


def measured_models(bench: Bench) -> list[tuple[Model, bool]]:
    """Shapes, and whether queries and keys are normalised."""
    return [(TOY, False)] if bench.toy else [(LLAMA, False), (QWEN, True)]


def make_device(bench: Bench) -> Device:
    """What the GPU executor is to run on."""
    return HostDevice() if bench.toy else Accelerator()


def make_decoders(config: ModelConfig, weights: DecoderWeights) -> Decoders:
    """On the Triton kernels."""
    return Decoders(Decoder(config, weights, mixed_operations()), Decoder(config, weights, decode_operations()))


@dataclass(frozen=True, slots=True)
class _RandomFiles:
    """Stands for a checkpoint's files: any tensor, random, of the expected shape."""

    shapes: dict[str, tuple[int, ...]]

    def check(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Take note of the shapes."""
        self.shapes.update(shapes)

    def read(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor whose products neither grow nor vanish."""
        shape = self.shapes[name]
        if len(shape) == 1:
            return torch.ones(shape, dtype=dtype, device=device)
        return torch.randn(shape, dtype=dtype, device=device) * shape[1] ** -0.5


def make_config(model: Model, qk_norm: bool) -> ModelConfig:
    """The model's config, parsed from a config.json as a checkpoint has one."""
    values: dict[str, Any] = {
        "architectures": ["Qwen3ForCausalLM" if qk_norm else "LlamaForCausalLM"],
        "vocab_size": model.vocab,
        "hidden_size": model.hidden,
        "intermediate_size": model.inner,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.size,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": qk_norm,
        "eos_token_id": 2,
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(values))
        return ModelConfig.from_directory(folder)


def make_weights(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> DecoderWeights:
    """Random weights."""
    with patch("backend.model.weights.WeightFiles", lambda _: _RandomFiles({})):
        return load_weights("random", config, dtype=dtype, device=device, progress=False)


def make_pool(config: ModelConfig, blocks: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A pool of zeros."""
    shape = (blocks, config.num_layers, 2, config.num_kv_heads, BLOCK_SIZE, config.head_dim)
    return torch.zeros(shape, dtype=dtype, device=device)


def step_inputs(shapes: list[tuple[int, int]], tables: Tensor) -> StepInputs:
    """The inputs of a step of sequences of (rows, keys), in the blocks of their tables."""
    device, rows = tables.device, torch.tensor([n for n, _ in shapes])
    lengths, start = torch.tensor([length for _, length in shapes]), torch.cat((torch.zeros(1).long(), rows.cumsum(0)))
    sequence = torch.repeat_interleave(torch.arange(len(shapes)), rows)
    positions = torch.arange(int(rows.sum())) - start[sequence] + (lengths - rows)[sequence]
    blocks = tables.cpu()[sequence, positions // BLOCK_SIZE].long()
    return StepInputs(
        token_ids=((positions * 7919 + sequence) % 199).to(device),
        positions=positions.to(device),
        query_start=start.int().to(device),
        kv_lengths=lengths.int().to(device),
        block_tables=tables,
        slot_mapping=(blocks * BLOCK_SIZE + positions % BLOCK_SIZE).to(device),
        logit_rows=(start[1:] - 1).to(device),
    )
