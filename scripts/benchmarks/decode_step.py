"""Time of one decode step on the CPU, over numbers of sequences and keys: what it grows with, and where it goes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backend.config import EngineConfig
from backend.cpu_precision import CpuNumbers, cpu_numbers
from backend.kv.storage import allocate, token_slots
from backend.model.batch import StepInputs
from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.kv_layout import layout_of
from backend.model.weights import DecoderWeights, load_weights
from kernels.operations import Operations

BLOCK_SIZE = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The model that is timed, and how it computes."""

    directory: Path
    precision: str
    threads: int
    batch_invariant: bool = False
    activation_precision: str = "auto"
    kv_cache_precision: str = "auto"

    @property
    def numbers(self) -> CpuNumbers:
        """What an engine of these precisions computes in."""
        knobs = EngineConfig(
            model_dir=str(self.directory),
            weight_precision=self.precision,
            activation_precision=self.activation_precision,
            kv_cache_precision=self.kv_cache_precision,
            batch_invariant=self.batch_invariant,
            tokens_per_block=BLOCK_SIZE,
        )
        return cpu_numbers(knobs, ModelConfig.from_directory(self.directory).head_dim)

    def operations(self) -> Operations:
        """The compiled operations."""
        return self.numbers.operations(self.threads)

    def load(self, operations: Operations) -> tuple[ModelConfig, DecoderWeights]:
        """The config, and the weights packed for these operations."""
        torch.set_num_threads(1)  # torch's own threads would fight the operations' for the cores
        config = ModelConfig.from_directory(self.directory)
        return config, load_weights(self.directory, config, progress=False, pack=operations.pack_linear)


def decode_batch(sequences: int, keys: int) -> StepInputs:
    """One new token for each of so many sequences, each with ``keys`` keys after it, in shuffled blocks."""
    blocks = -(-keys // BLOCK_SIZE)
    tables = (torch.randperm(sequences * blocks) + 1).view(sequences, blocks).int()
    return StepInputs(
        token_ids=torch.arange(sequences),
        positions=torch.full((sequences,), keys - 1),
        query_start=torch.arange(sequences + 1, dtype=torch.int32),
        kv_lengths=torch.full((sequences,), keys, dtype=torch.int32),
        block_tables=tables,
        slot_mapping=tables[:, -1].long() * BLOCK_SIZE + (keys - 1) % BLOCK_SIZE,
        logit_rows=torch.arange(sequences),
    )


def pool_for(config: ModelConfig, num_blocks: int, dtype: torch.dtype) -> Tensor:
    """A pool filled with something, as a cache in use is."""
    layout = layout_of(config, BLOCK_SIZE, dtype)
    blocks = allocate(layout, num_blocks)
    for block in blocks:
        if dtype == torch.int16:
            block.random_(-(2**12), 2**12)
        else:
            block.normal_()
    return token_slots(blocks, layout)


def step_milliseconds(decoder: Decoder, inputs: StepInputs, pool: Tensor, repeats: int) -> list[float]:
    """Of each of so many steps, after one that warms the caches."""
    decoder.forward(inputs, pool)
    return [_milliseconds(lambda: decoder.forward(inputs, pool)) for _ in range(repeats)]


def _milliseconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1e3


def growth(subject: Subject, sequences: list[int], keys: list[int], repeats: int) -> Iterator[dict[str, Any]]:
    """A line per number of sequences and keys of each, with the median time of its step."""
    operations = subject.operations()
    config, weights = subject.load(operations)
    decoder = Decoder(config, weights, operations)
    pool = pool_for(config, 1 + max(sequences) * (-(-max(keys) // BLOCK_SIZE)), subject.numbers.pool)
    for count in sequences:
        for length in keys:
            times = step_milliseconds(decoder, decode_batch(count, length), pool, repeats)
            yield {
                "sequences": count,
                "keys_each": length,
                "total_keys": count * length,
                "ms": round(statistics.median(times), 2),
                "fastest_ms": round(min(times), 2),
            }


def linear_fit(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Least squares over lines of one number of sequences: ``ms = fixed_ms + ms_per_1000_keys * total_keys / 1000``.

    r2 is the share of the variance that the line explains.
    """
    x, y = ([line[key] for line in lines] for key in ("total_keys", "fastest_ms"))
    slope, fixed = statistics.linear_regression(x, y)
    return {
        "fixed_ms": round(fixed, 2),
        "ms_per_1000_keys": round(slope * 1000, 3),
        "r2": round(statistics.correlation(x, y) ** 2, 4),
    }
