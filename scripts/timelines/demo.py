"""A run to be drawn: long answers of low level, requests that join in mid-flight, one that waits, urgent ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from backend.config import EngineConfig
from backend.engine_builder import build_engine
from backend.request import Request
from backend.sampling_params import SamplingParams
from scripts.benchmarks.workloads import VOCABULARY


class Arrival(NamedTuple):
    """A request that comes once so many steps have been launched."""

    step: int
    level: int
    prompt: int
    output: int


ARRIVALS = (
    Arrival(0, 3, 60, 34),
    Arrival(0, 3, 40, 30),
    Arrival(3, 3, 110, 26),
    Arrival(7, 2, 30, 8),
    Arrival(9, 3, 48, 16),
    Arrival(20, 1, 150, 10),
    Arrival(22, 1, 30, 9),
)
SETTINGS = {
    "max_batch_size": "4",
    "max_num_tokens": "64",
    "max_tokens_in_paged_kv_cache": "448",
    "preemption_mode": "swap",
    # No step is cut by time, so that the machine's speed changes nothing.
    "max_step_ms": "0",
    "target_inter_token_ms": "0",
}
HOST_BLOCKS = 5
"""Room for one victim; the other's blocks are dropped and computed again."""
_SEED = 1


def record(model_dir: Path, trace_file: Path) -> None:
    """Run it on the real engine; which step computes what does not depend on the machine's speed.

    Raises LoadError or MemoryError.
    """
    sizes = {"kv_cache_host_memory_bytes": str(HOST_BLOCKS * _block_bytes(model_dir))}
    given = {"model_dir": str(model_dir), "device": "cpu", "step_trace_file": str(trace_file)}
    engine = build_engine(EngineConfig.from_parameters(SETTINGS | sizes | given)).engine
    coming, launched = list(ARRIVALS), 0
    while engine.has_work or coming:
        while coming and coming[0].step <= launched:
            engine.add(_request(len(ARRIVALS) - len(coming) + 1, coming.pop(0)))
        engine.step()
        launched += 1
    engine.close()


def _request(number: int, arrival: Arrival) -> Request:
    prompt = random.Random(_SEED + number).choices(VOCABULARY, k=arrival.prompt)
    return Request(
        request_id=number,
        prompt=tuple(prompt),
        sampling=SamplingParams(max_tokens=arrival.output),
        level=arrival.level,
        arrival=number,
    )


def _block_bytes(model_dir: Path) -> int:
    """Of the pool that the engine will have."""
    from backend.cpu_precision import cpu_numbers
    from backend.model.config import ModelConfig
    from backend.model.kv_layout import layout_of

    config = EngineConfig(model_dir=str(model_dir))
    model = ModelConfig.from_directory(model_dir)
    return layout_of(model, config.tokens_per_block, cpu_numbers(config, model.head_dim).pool).bytes_per_block
