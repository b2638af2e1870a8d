"""From an EngineConfig to a running Engine: model, pool, scheduler, executor. The device is chosen here, once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import torch

from backend.config import EngineConfig
from backend.engine import Engine, StepTrace
from backend.errors import ConfigError
from backend.executor.cpu import CpuExecutor
from backend.kv.block_pool import BlockPool
from backend.kv.block_table import blocks_for
from backend.kv.storage import KVLayout, allocate
from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.weights import load_weights
from backend.scheduler.scheduler import Scheduler
from kernels.table import reference_operations


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedEngine:
    """An engine with what its surroundings need to know of it."""

    engine: Engine
    model: ModelConfig
    max_seq_len: int
    pool_tokens: int


def build_engine(config: EngineConfig, progress: bool = True) -> LoadedEngine:
    """Load the model and make the engine.

    Raises ConfigError, ModelError or MemoryError, each with one line for the operator.
    """
    torch.set_num_threads(config.num_threads or os.cpu_count() or 1)
    model = ModelConfig.from_directory(config.model_dir)
    layout = KVLayout(
        num_layers=model.num_layers,
        num_kv_heads=model.num_kv_heads,
        block_size=config.tokens_per_block,
        head_dim=model.head_dim,
        dtype=torch.float32,
    )
    weights = load_weights(config.model_dir, model, progress=progress)
    num_blocks = 1 + _usable_blocks(config, model, layout)
    max_seq_len = _max_seq_len(config, model, (num_blocks - 1) * layout.block_size)
    pool = allocate(layout, num_blocks, "cpu")
    scheduler = Scheduler(
        BlockPool(num_blocks),
        block_size=layout.block_size,
        max_batch_size=config.max_batch_size,
        max_num_tokens=config.max_num_tokens,
        max_seq_len=max_seq_len,
    )
    executor = CpuExecutor(Decoder(model, weights, reference_operations()), pool)
    engine = Engine(scheduler, executor, _step_watch(config))
    return LoadedEngine(
        engine=engine, model=model, max_seq_len=max_seq_len, pool_tokens=(num_blocks - 1) * layout.block_size
    )


def available_memory() -> int:
    """Bytes of main memory that can be taken without swapping, as the kernel estimates it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ConfigError("/proc/meminfo has no MemAvailable; set max_tokens_in_paged_kv_cache")


def _check_room(what: str, needed: int, free: int) -> None:
    if needed > free:
        raise ConfigError(f"too little memory: {what} needs {needed / 2**30:.2f} GiB, {free / 2**30:.2f} GiB are free")


def _usable_blocks(config: EngineConfig, model: ModelConfig, layout: KVLayout) -> int:
    """Blocks without the null block: as asked, or a share of free memory, but no more than all slots could fill."""
    free = available_memory()
    asked = config.max_tokens_in_paged_kv_cache
    if asked:
        _check_room(
            f"a pool of {asked} tokens (max_tokens_in_paged_kv_cache)",
            asked * layout.bytes_per_block // layout.block_size,
            free,
        )
        return blocks_for(asked, layout.block_size)
    longest = config.max_seq_len or model.max_position_embeddings
    most = config.max_batch_size * blocks_for(longest, layout.block_size)
    share = int(free * config.kv_cache_free_gpu_mem_fraction) // layout.bytes_per_block
    if share < 2:
        raise ConfigError(
            f"too little memory: the pool's share ({config.kv_cache_free_gpu_mem_fraction} of what is free, "
            f"kv_cache_free_gpu_mem_fraction) holds {share} blocks of {layout.bytes_per_block} bytes"
        )
    return min(most, share)


def _max_seq_len(config: EngineConfig, model: ModelConfig, pool_tokens: int) -> int:
    """The asked limit, checked; or what model and pool allow. A pool holds one token less than its longest request."""
    if not config.max_seq_len:
        return min(model.max_position_embeddings, pool_tokens + 1)
    if config.max_seq_len > model.max_position_embeddings:
        raise ConfigError(
            f"parameter max_seq_len: {config.max_seq_len} is above the model's {model.max_position_embeddings}"
        )
    if config.max_seq_len > pool_tokens + 1:
        raise ConfigError(
            f"parameter max_seq_len: {config.max_seq_len} is above the {pool_tokens} tokens that the KV pool holds "
            "(max_tokens_in_paged_kv_cache)"
        )
    return config.max_seq_len


def _step_watch(config: EngineConfig) -> Callable[[StepTrace], None]:
    if not config.step_trace_file:
        return lambda trace: None
    file = Path(config.step_trace_file).open("a", buffering=1)  # noqa: SIM115 - open as long as the engine lives
    return lambda trace: _write_trace(file, trace)


def _write_trace(file: TextIO, trace: StepTrace) -> None:
    """One JSON line: step, seconds, and for each sequence its request id, first position and number of tokens."""
    work = [[w.sequence.request.request_id, w.start, w.num_tokens] for w in trace.plan.work]
    line = {"step": trace.plan.step, "started": trace.started, "seconds": trace.seconds, "work": work}
    file.write(json.dumps(line) + "\n")
