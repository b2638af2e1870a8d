"""From an EngineConfig to a running Engine: model, pool, scheduler, executor. The device is chosen here, once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

import torch

from backend import sizing
from backend.config import EngineConfig
from backend.engine import Engine, StepTrace
from backend.executor.cpu import CpuExecutor
from backend.kv.block_pool import BlockPool
from backend.kv.host_pool import HostPool
from backend.kv.storage import KVLayout, allocate
from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.weights import load_weights
from backend.scheduler.costs import PreemptionCosts, PreemptionMode
from backend.scheduler.scheduler import Scheduler
from backend.scheduler.settings import SchedulerSettings
from kernels.table import cpu_operations

# The compiled operations bring threads of their own; torch's would spin on the same cores.
_TORCH_THREADS = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedEngine:
    """An engine with what its surroundings need to know of it."""

    engine: Engine
    model: ModelConfig
    max_seq_len: int
    pool_tokens: int


def build_engine(config: EngineConfig, progress: bool = True) -> LoadedEngine:
    """Load the model and make the engine.

    Raises LoadError or MemoryError, each with one line for the operator.
    """
    torch.set_num_threads(_TORCH_THREADS)
    model = ModelConfig.from_directory(config.model_dir)
    layout = _layout(config, model)
    operations = cpu_operations(config.num_threads or os.cpu_count() or 1, config.weight_precision)
    weights = load_weights(config.model_dir, model, progress=progress, pack=operations.pack_linear)
    num_blocks = 1 + sizing.usable_blocks(config, model, layout)
    num_host_slots = sizing.host_slots(config, layout)
    pool_tokens = (num_blocks - 1) * layout.block_size
    limit = sizing.max_seq_len(config, model, pool_tokens)
    host = torch.empty((num_host_slots, *layout.block_shape), dtype=layout.dtype)
    executor = CpuExecutor(
        Decoder(model, weights, operations), allocate(layout, num_blocks, "cpu"), host, _TORCH_THREADS
    )
    scheduler = Scheduler(
        _settings(config, limit), BlockPool(num_blocks), HostPool(num_host_slots), _measure_costs(config, executor)
    )
    engine = Engine(scheduler, executor, overlap=config.enable_overlap, watch=_step_watch(config))
    return LoadedEngine(engine=engine, model=model, max_seq_len=limit, pool_tokens=pool_tokens)


def _layout(config: EngineConfig, model: ModelConfig) -> KVLayout:
    return KVLayout(
        num_layers=model.num_layers,
        num_kv_heads=model.num_kv_heads,
        block_size=config.tokens_per_block,
        head_dim=model.head_dim,
        dtype=torch.float32,
    )


def _settings(config: EngineConfig, max_seq_len: int) -> SchedulerSettings:
    return SchedulerSettings(
        block_size=config.tokens_per_block,
        max_batch_size=config.max_batch_size,
        max_num_tokens=config.max_num_tokens,
        max_seq_len=max_seq_len,
        guaranteed_no_evict=config.batch_scheduler_policy == "guaranteed_no_evict",
        prefix_cache=config.enable_kv_cache_reuse,
        preemption_cap=config.preemption_cap,
        free_block_reserve=config.free_block_reserve,
        ageing_seconds=config.ageing_seconds,
        target_step_seconds=config.target_inter_token_ms / 1e3,
    )


def _measure_costs(config: EngineConfig, executor: CpuExecutor) -> PreemptionCosts:
    """The first run also warms the executor up, so that the first request does not."""
    executor.seconds_per_token(min(64, config.max_num_tokens))
    return PreemptionCosts(
        seconds_per_token=executor.seconds_per_token(min(64, config.max_num_tokens)),
        seconds_per_block=executor.seconds_per_block(),
        mode=cast(PreemptionMode, config.preemption_mode),
    )


def _step_watch(config: EngineConfig) -> Callable[[StepTrace], None]:
    if not config.step_trace_file:
        return lambda trace: None
    file = Path(config.step_trace_file).open("a", buffering=1)  # noqa: SIM115 - open as long as the engine lives
    return lambda trace: _write_trace(file, trace)


def _write_trace(file: TextIO, trace: StepTrace) -> None:
    """One JSON line: step, seconds, and for each sequence its request id, first position and number of tokens."""
    file.write(json.dumps(trace._asdict()) + "\n")
