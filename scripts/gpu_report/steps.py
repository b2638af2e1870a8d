"""The whole model on the Triton kernels, with random weights: right, and how long its steps take."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from kernel_report.work import LLAMA, QWEN, Model
from torch import Tensor

from backend.model.batch import StepInputs
from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.weights import DecoderWeights, load_weights
from kernels.launch_operations import decode_operations, mixed_operations
from kernels.table import reference_operations

from .measure import Bench, Ceilings, Result

BLOCK_SIZE = 16
SLACK = 1.25  # a decode step may take this many times what its bytes take at the measured bandwidth
TOY = replace(LLAMA, name="toy", layers=2, hidden=64, inner=96, heads=4, kv_heads=2, size=16, vocab=200)


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


def run(bench: Bench, tops: Ceilings) -> Iterator[Result]:
    """The model against float32, then the time of its steps."""
    yield from _correct(bench)
    for model, qk_norm in ((TOY, False),) if bench.toy else ((LLAMA, False), (QWEN, True)):
        if bench.over():
            yield Result("step", model.name, "left out: time is up")
            continue
        yield from _timed(bench, tops, model, qk_norm)


def _correct(bench: Bench) -> Iterator[Result]:
    """A prompt and four decode steps, float32, on the Triton kernels and on the references."""
    torch.manual_seed(0)
    for qk_norm in (False, True):
        name = "whole model, prompt and 4 decode steps" + (", norm of queries and keys" if qk_norm else "")
        if bench.over():
            yield Result("correctness", name, "left out: time is up")
            continue
        config = make_config(TOY, qk_norm)
        weights = make_weights(config, torch.float32, bench.device)
        worst = 0.0
        found, expected = (_logits(config, weights, bench, o) for o in (_triton_operations, _reference_operations))
        for a, b in zip(found, expected, strict=True):
            worst = max(worst, float((a - b).abs().max()))
        yield Result("correctness", name, f"{worst:.1e} of 1e-03", ok=worst < 1e-3)


def _triton_operations(decode: bool) -> Any:
    return decode_operations() if decode else mixed_operations()


def _reference_operations(decode: bool) -> Any:  # noqa: ARG001
    return reference_operations()


def _logits(
    config: ModelConfig, weights: DecoderWeights, bench: Bench, operations: Callable[[bool], Any]
) -> list[Tensor]:
    pool = make_pool(config, 8, torch.float32, bench.device)
    tables = torch.tensor([[5, 2, 7], [1, 6, 3]], dtype=torch.int32, device=bench.device)
    found = [Decoder(config, weights, operations(False)).forward(step_inputs([(9, 9), (21, 21)], tables), pool)]
    for step in range(1, 5):
        inputs = step_inputs([(1, 9 + step), (1, 21 + step)], tables)
        found.append(Decoder(config, weights, operations(True)).forward(inputs, pool))
    return found


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


def _timed(bench: Bench, tops: Ceilings, model: Model, qk_norm: bool) -> Iterator[Result]:
    config = make_config(model, qk_norm)
    dtype = torch.float32 if bench.toy else torch.bfloat16
    weights = make_weights(config, dtype, bench.device)
    yield _prefill(bench, tops, model, config, weights)
    for batch, context in _decode_sizes(bench):
        name = f"{model.name}: decode step, batch {batch}, context {context}"
        moved = _step_bytes(model, batch, context, dtype.itemsize)
        fits = bench.toy or batch * context * _token_bytes(model, 2) < 0.8 * torch.cuda.mem_get_info()[0]
        if bench.over() or not fits:
            yield Result("step", name, "left out: " + ("no memory for it" if not fits else "time is up"))
            continue
        seconds = _decode_seconds(bench, config, weights, batch, context)
        if bench.toy:
            yield Result("step", name, "ran")
            continue
        share = moved / tops.bandwidth / seconds
        ok = None if context != 8192 or batch not in (1, 64) else share >= 1 / SLACK
        yield Result("step", name, f"{seconds * 1e3:.2f} ms, {batch / seconds:.0f} tokens/s", ok=ok, share=share)


def _decode_sizes(bench: Bench) -> list[tuple[int, int]]:
    if bench.toy:
        return [(2, 40)]
    return [(batch, context) for context in (8192, 1024, 32768) for batch in (1, 64, 8, 256)]


def _token_bytes(model: Model, item: int) -> int:
    return 2 * model.layers * model.kv_heads * model.size * item


def _step_bytes(model: Model, batch: int, context: int, item: int) -> int:
    layer = model.hidden * (model.qkv + model.heads * model.size) + 3 * model.hidden * model.inner
    return item * (model.layers * layer + model.vocab * model.hidden) + batch * context * _token_bytes(model, item)


def _prefill(bench: Bench, tops: Ceilings, model: Model, config: ModelConfig, weights: DecoderWeights) -> Result:
    rows = bench.pick(8192, 24)
    tables = torch.arange(1, rows // BLOCK_SIZE + 2, dtype=torch.int32, device=bench.device)[None]
    pool = make_pool(config, tables.shape[1] + 1, weights.embedding.dtype, bench.device)
    decoder, inputs = Decoder(config, weights, mixed_operations()), step_inputs([(rows, rows)], tables)
    seconds = bench.seconds(lambda: decoder.forward(inputs, pool), repeats=3)
    name = f"{model.name}: prefill of {rows} tokens"
    if bench.toy:
        return Result("step", name, "ran")
    layer = model.hidden * (model.qkv + model.heads * model.size) + 3 * model.hidden * model.inner
    computed = 2 * rows * model.layers * layer + 2 * rows**2 * model.layers * model.heads * model.size
    return Result("step", name, f"{rows / seconds:.0f} tokens/s", share=computed / tops.rate / seconds)


def _decode_seconds(
    bench: Bench, config: ModelConfig, weights: DecoderWeights, batch: int, context: int
) -> float:  # fmt: skip
    """Median time of a decode step; on a GPU, replayed from a captured graph as the executor would."""
    blocks = -(-context // BLOCK_SIZE)
    tables = torch.arange(1, batch * blocks + 1, dtype=torch.int32, device=bench.device).view(batch, blocks)
    pool = make_pool(config, batch * blocks + 1, weights.embedding.dtype, bench.device)
    decoder, inputs = Decoder(config, weights, decode_operations()), step_inputs([(1, context)] * batch, tables)
    if bench.toy:
        return bench.seconds(lambda: decoder.forward(inputs, pool))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # compiles what is to be captured
        decoder.forward(inputs, pool)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.forward(inputs, pool)
    return bench.seconds(graph.replay, repeats=5, cold=False)
