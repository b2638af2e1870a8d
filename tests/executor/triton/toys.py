"""A toy model, engines on the GPU executor's stand-in for a device, and what the CPU executor says for the same."""

import sys
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from backend.engine import Engine
from backend.executor.cpu import CpuExecutor
from backend.executor.device import Device, HostDevice
from backend.executor.gpu import Decoders, GpuExecutor, StepLimits
from backend.kv.block_pool import BlockPool
from backend.kv.host_pool import HostPool
from backend.kv.storage import KVLayout, allocate
from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.kv_layout import layout_of
from backend.model.weights import DecoderWeights
from backend.request import Request
from backend.scheduler.costs import PreemptionCosts
from backend.scheduler.scheduler import Scheduler
from backend.scheduler.settings import SchedulerSettings
from kernels.launch_operations import decode_operations, mixed_operations
from kernels.table import reference_operations

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))

from gpu_report.random_models import TOY, make_config, make_weights

BLOCK = 4
MAX_SEQ_LEN = 80
VOCAB = 101


@cache
def toy() -> tuple[ModelConfig, DecoderWeights]:
    """One layer of one group of two heads, norms of queries and keys; float32, random. As small as tells blocks apart:

    the interpreter takes a millisecond for each program of each kernel.
    """
    torch.manual_seed(3)
    shapes = replace(TOY, layers=1, hidden=32, inner=48, heads=2, kv_heads=1, vocab=VOCAB)
    config = make_config(shapes, qk_norm=True)
    return config, make_weights(config, torch.float32, torch.device("cpu"))


def layout() -> KVLayout:
    config, _ = toy()
    return layout_of(config, BLOCK)


def decoders() -> Decoders:
    config, weights = toy()
    return Decoders(Decoder(config, weights, mixed_operations()), Decoder(config, weights, decode_operations()))


def poisoned_pool(blocks: int) -> torch.Tensor:
    """Every slot that nothing has written is NaN, but for the null block."""
    pool = allocate(layout(), blocks + 1)
    pool[1:] = torch.nan
    return pool


@dataclass
class Lab:
    """An engine and what it is made of."""

    engine: Engine
    executor: GpuExecutor
    pool: torch.Tensor

    @property
    def residency(self) -> Any:
        return self.engine.scheduler.residency


def gpu_executor(
    blocks: int = 60,
    slots: int = 4,
    step_tokens: int = 24,
    host_slots: int = 0,
    graph_sizes: tuple[int, ...] = (4, 1),
    device: Device | None = None,
) -> tuple[GpuExecutor, torch.Tensor]:
    device, pool = device or HostDevice(), poisoned_pool(blocks)
    host = device.host_tensor((host_slots, *layout().block_shape), torch.float32)
    limits = StepLimits(step_tokens, slots, MAX_SEQ_LEN, BLOCK)
    return GpuExecutor(device, decoders(), pool, host, limits, graph_sizes), pool


def gpu_lab(
    blocks: int = 60,
    slots: int = 4,
    step_tokens: int = 24,
    host_slots: int = 0,
    mode: Any = "recompute",
    ahead: bool = True,
    **options: Any,
) -> Lab:
    executor, pool = gpu_executor(blocks, slots, step_tokens, host_slots, **options)
    scheduler = _scheduler(blocks, slots, step_tokens, host_slots, mode)
    return Lab(Engine(scheduler, executor, ahead=ahead), executor, pool)


def _scheduler(blocks: int, slots: int, step_tokens: int, host_slots: int = 0, mode: Any = "recompute") -> Scheduler:
    settings = SchedulerSettings(
        block_size=BLOCK,
        max_batch_size=slots,
        max_num_tokens=step_tokens,
        max_seq_len=MAX_SEQ_LEN,
        free_block_reserve=0.0,
    )
    costs = PreemptionCosts(seconds_per_token=1.0, seconds_per_block=1.0, mode=mode)
    return Scheduler(settings, BlockPool(blocks + 1), HostPool(host_slots), costs)


def run(engine: Engine, requests: list[Request], most_steps: int = 400) -> list[list[int]]:
    """Every request's output. All are handed over at once; the books are checked after each step."""
    sequences = [engine.add(request) for request in requests]
    for _ in range(most_steps):
        if not engine.has_work:
            break
        engine.step()
        engine.scheduler.check_integrity()
    assert not engine.has_work
    engine.check_idle()
    return [list(sequence.output) for sequence in sequences]


def expected(requests: list[Request]) -> list[list[int]]:
    """What the CPU executor gives for each request alone, on the reference operations, in a pool with room."""
    config, weights = toy()
    results = []
    for request in requests:
        decoder, pool = Decoder(config, weights, reference_operations()), poisoned_pool(40)
        executor = CpuExecutor(partial(decoder.forward, pool=pool), pool, pool.shape[4], _nothing())
        engine = Engine(_scheduler(40, 1, 64), executor)
        results += run(engine, [request])
        engine.close()
    return results


def _nothing() -> torch.Tensor:
    return torch.empty((0, *layout().block_shape))
