"""Many mixed requests through engine and GPU executor: output tokens a second, and how long the GPU idles."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from kernel_report.work import Model

from backend.engine import Engine
from backend.executor.decode_graphs import graph_sizes
from backend.executor.gpu import GpuExecutor, StepLimits
from backend.executor.staging import ReturningTokens
from backend.kv.block_pool import BlockPool
from backend.model.config import ModelConfig
from backend.model.weights import DecoderWeights
from backend.request import Request
from backend.sampling_params import SamplingParams
from backend.scheduler.plan import StepPlan
from backend.scheduler.scheduler import Scheduler
from backend.scheduler.settings import SchedulerSettings

from .measure import Bench, Result
from .random_models import BLOCK_SIZE, make_decoders, make_device, make_pool

REQUESTS = 256
MOST_IDLE = 0.05
_SECTION = "end to end"


class StepStamps(NamedTuple):
    """When a step began and ended on the stream. late: mixed, and begun before it had been launched to its end."""

    begin: torch.cuda.Event
    end: torch.cuda.Event
    late: bool


class TimedExecutor:
    """Stamps the stream before and after each step. Only on a GPU are there stamps; elsewhere it passes steps on."""

    def __init__(self, executor: GpuExecutor) -> None:
        self._executor = executor
        self._steps: list[StepStamps] = []

    def launch(self, plan: StepPlan) -> ReturningTokens:
        """The executor's, between two stamps."""
        if self._executor.device.torch_device.type == "cpu":
            return self._executor.launch(plan)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self._executor.device.stream():
            begin.record()
            handle = self._executor.launch(plan)
            self._steps.append(StepStamps(begin, end, bool(plan.chunks) and begin.query()))
            end.record()
        return handle

    def close(self) -> None:
        """The executor's."""
        self._executor.close()

    def idle_share(self) -> float:
        """Time between the end of a step and the beginning of the next, as a share of all."""
        between = sum(one.end.elapsed_time(other.begin) for one, other in pairwise(self._steps))
        return between / self._seconds()

    def late_share(self) -> float:
        """Time of late steps, as a share of all: within these, too, the GPU may have waited for launches."""
        return sum(step.begin.elapsed_time(step.end) for step in self._steps if step.late) / self._seconds()

    def _seconds(self) -> float:
        return self._steps[0].begin.elapsed_time(self._steps[-1].end)


def run(bench: Bench, model: Model, config: ModelConfig, weights: DecoderWeights) -> Iterator[Result]:
    """One run of all requests, handed over at once."""
    name = f"{model.name}: {REQUESTS} mixed requests"
    if bench.over():
        yield Result(_SECTION, name, "left out: time is up")
        return
    requests = make_requests(bench, config.vocab_size)
    engine, executor = _make_engine(bench, config, weights, requests)
    for request in requests:
        engine.add(request)
    begin, produced = time.perf_counter(), 0
    while engine.has_work:
        produced += sum(token is not None for _, token in engine.step())
    seconds = time.perf_counter() - begin
    engine.close()
    asked = sum(request.sampling.max_tokens for request in requests)
    if bench.toy:
        yield Result(_SECTION, name, f"ran: {produced} of {asked} tokens", ok=produced == asked)
        return
    prompts = sum(len(request.prompt) for request in requests)
    value = f"{produced / seconds:.0f} output tokens/s, {prompts} prompt tokens, {seconds:.1f} s"
    yield Result(_SECTION, name, value, ok=None if produced == asked else False)
    idle, late = executor.idle_share(), executor.late_share()
    value = f"{idle:.2%}; at most {idle + late:.1%} with gaps within mixed steps"
    yield Result(_SECTION, f"{model.name}: share of the time that the GPU idles", value, ok=idle < MOST_IDLE)


def make_requests(bench: Bench, vocab_size: int) -> list[Request]:
    """Prompts and answers of many lengths; every other one is sampled. End of sequence is ignored."""
    draw = random.Random(0)
    longest, most = bench.pick(2048, 8), bench.pick(256, 2)
    made = []
    for number in range(bench.pick(REQUESTS, 3)):
        sampled = {"temperature": 0.8, "top_p": 0.95, "seed": number} if number % 2 else {}
        sampling = SamplingParams(max_tokens=draw.randint(most // 8 + 1, most), **sampled)  # type: ignore[arg-type]
        prompt = tuple(draw.randrange(vocab_size) for _ in range(draw.randint(longest // 64 + 1, longest)))
        made.append(Request(request_id=number, prompt=prompt, sampling=sampling, level=1, arrival=number))
    return made


def _make_engine(
    bench: Bench, config: ModelConfig, weights: DecoderWeights, requests: list[Request]
) -> tuple[Engine, TimedExecutor]:
    """A pool that holds all; as many slots as requests."""
    slots, step_tokens = len(requests), bench.pick(8192, 12)
    longest = max(len(request.prompt) + request.sampling.max_tokens for request in requests)
    blocks = 1 + sum(-(-request.max_tokens_held // BLOCK_SIZE) for request in requests)
    pool = make_pool(config, blocks, weights.embedding.dtype, bench.device)
    limits = StepLimits(step_tokens, slots, longest, BLOCK_SIZE)
    executor = GpuExecutor(
        make_device(bench), make_decoders(config, weights), pool, pool[:0].cpu(), limits, graph_sizes(slots)
    )
    executor.warm_up()
    settings = SchedulerSettings(
        block_size=BLOCK_SIZE,
        max_batch_size=slots,
        max_num_tokens=step_tokens,
        max_seq_len=longest,
        free_block_reserve=0.0,
    )
    timed = TimedExecutor(executor)
    return Engine(Scheduler(settings, BlockPool(blocks)), timed, ahead=True), timed
