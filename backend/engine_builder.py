"""From an EngineConfig to a running Engine: model, pool, scheduler, executor. The device is chosen here, once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from backend.config import EngineConfig
from backend.device_choice import chosen_device
from backend.engine import Engine
from backend.engine_parts import EngineParts, cpu_parts
from backend.errors import ConfigError
from backend.executor.base import Executor, InterruptibleExecutor
from backend.kv.block_pool import BlockPool
from backend.kv.host_pool import HostPool
from backend.model.config import ModelConfig
from backend.scheduler.costs import PreemptionCosts, PreemptionMode
from backend.scheduler.scheduler import Scheduler
from backend.scheduler.settings import SchedulerSettings
from backend.scheduler.step_time import StepTime
from backend.step_trace import StepTraceFile

# The compiled operations bring threads of their own; torch's would spin on the same cores.
_TORCH_THREADS = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedEngine:
    """An engine with what its surroundings need to know of it. no_guides: why it cannot be guided, "" if it can.

    no_host_logits: why it can neither search over beams nor give logits of prompts, "" if it can.
    """

    engine: Engine
    model: ModelConfig
    max_seq_len: int
    pool_tokens: int
    no_guides: str
    no_host_logits: str


def build_engine(config: EngineConfig, progress: bool = True) -> LoadedEngine:
    """Load the model and make the engine.

    Raises LoadError or MemoryError, each with one line for the operator.
    """
    torch.set_num_threads(_TORCH_THREADS)
    device = chosen_device(config)
    model = ModelConfig.from_directory(config.model_dir)
    parts = _gpu_parts(config, model, progress) if device == "cuda" else cpu_parts(config, model, progress)
    return assembled(config, model, parts)


def assembled(config: EngineConfig, model: ModelConfig, parts: EngineParts) -> LoadedEngine:
    """An engine of these parts."""
    scheduler = Scheduler(
        _settings(config, parts.max_seq_len, parts.executor),
        BlockPool(parts.num_blocks),
        HostPool(parts.num_host_slots),
        _measure_costs(config, parts),
    )
    _teach(scheduler.step_time, parts)
    engine = Engine(scheduler, parts.executor, overlap=config.enable_overlap, ahead=parts.ahead)
    if config.step_trace_file:
        StepTraceFile(Path(config.step_trace_file)).attach(engine)
    pool_tokens = (parts.num_blocks - 1) * config.tokens_per_block
    return LoadedEngine(
        engine=engine,
        model=model,
        max_seq_len=parts.max_seq_len,
        pool_tokens=pool_tokens,
        no_guides=parts.no_guides,
        no_host_logits=parts.no_host_logits,
    )


def _gpu_parts(config: EngineConfig, model: ModelConfig, progress: bool) -> EngineParts:
    # Imported here, as the CPU needs no Triton language.
    try:
        from backend.executor.accelerator import Accelerator
        from backend.gpu_parts import gpu_parts
    except ImportError as error:
        raise ConfigError(f"parameter device: a GPU needs the Triton language, package triton ({error})") from error

    return gpu_parts(config, model, Accelerator(), progress)


def _settings(config: EngineConfig, max_seq_len: int, executor: Executor) -> SchedulerSettings:
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
        max_step_seconds=config.max_step_ms / 1e3,
        interruptible=isinstance(executor, InterruptibleExecutor),
    )


def _measure_costs(config: EngineConfig, parts: EngineParts) -> PreemptionCosts:
    """The first run also warms the executor up, so that the first request does not."""
    parts.executor.seconds_per_token(parts.measured_tokens)
    return PreemptionCosts(
        seconds_per_token=parts.executor.seconds_per_token(parts.measured_tokens),
        seconds_per_block=parts.executor.seconds_per_block(),
        mode=cast(PreemptionMode, config.preemption_mode),
    )


def _teach(step_time: StepTime, parts: EngineParts) -> None:
    """Measure a step of one token and a long one, so that the first requests are cut to size, too."""
    for num_tokens in (1, parts.measured_tokens) * 4:
        step_time.observe(num_tokens, num_tokens * parts.executor.seconds_per_token(num_tokens))
