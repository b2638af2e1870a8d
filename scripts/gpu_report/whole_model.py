"""A whole small model on the Triton kernels against the references, in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.weights import DecoderWeights
from kernels.launch_operations import decode_operations, mixed_operations
from kernels.table import reference_operations

from .measure import Bench, Result
from .random_models import TOY, make_config, make_pool, make_weights, step_inputs


def run(bench: Bench) -> Iterator[Result]:
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
