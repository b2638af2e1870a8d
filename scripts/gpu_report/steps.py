"""How long the steps of a model with random weights take; decode steps as the executor's captured graphs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from kernel_report.work import Model

from backend.executor.gpu import GpuExecutor, StepLimits
from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.weights import DecoderWeights
from backend.request import Request, Sequence
from backend.sampling_params import SamplingParams
from backend.scheduler.plan import BlockCopies, StepPlan
from kernels.launch_operations import mixed_operations

from .measure import Bench, Ceilings, Result
from .random_models import BLOCK_SIZE, make_decoders, make_device, make_pool, step_inputs

SLACK = 1.25  # a decode step may take this many times what its bytes take at the measured bandwidth


def run(
    bench: Bench, tops: Ceilings, model: Model, config: ModelConfig, weights: DecoderWeights
) -> Iterator[Result]:  # fmt: skip
    """Prefill, then decode steps: the most telling sizes first."""
    dtype = weights.embedding.dtype
    yield _prefill(bench, tops, model, config, weights)
    for batch, context in _decode_sizes(bench):
        name = f"{model.name}: decode step, batch {batch}, context {context}"
        moved = _step_bytes(model, batch, context, dtype.itemsize)
        fits = batch * context * _token_bytes(model, 2) < 0.8 * bench.free_bytes()
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


@torch.inference_mode()
def _decode_seconds(
    bench: Bench, config: ModelConfig, weights: DecoderWeights, batch: int, context: int
) -> float:  # fmt: skip
    """Median time of the executor's graph, sampling included; the copies to and from the host are not."""
    device, blocks = make_device(bench), -(-context // BLOCK_SIZE)
    pool = make_pool(config, batch * blocks + 1, weights.embedding.dtype, bench.device)
    limits = StepLimits(max(batch, 16), batch, context + BLOCK_SIZE, BLOCK_SIZE)
    executor = GpuExecutor(device, make_decoders(config, weights), pool, pool[:0].cpu(), limits, [batch])
    sequences = [_decoding(n, context, range(n * blocks + 1, (n + 1) * blocks + 1)) for n in range(batch)]
    executor.launch(StepPlan(1, sequences, [], BlockCopies([], [], [], []))).collect()
    with device.stream():
        return bench.seconds(lambda: executor.graphs.replay(batch), repeats=5, cold=False)


def _decoding(number: int, context: int, blocks: range) -> Sequence:
    """A sequence whose last token is to be computed; the step then sees ``context`` keys."""
    request = Request(
        request_id=number, prompt=(7,) * context, sampling=SamplingParams(max_tokens=2), level=1, arrival=number
    )
    sequence = Sequence(request)
    sequence.num_computed, sequence.blocks = context, list(blocks)
    return sequence
