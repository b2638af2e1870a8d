"""What each kernel reaches, as a share of the ceilings measured in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from kernel_report.work import LLAMA, Work, attention, copies, linear, pointwise

from kernels.add_rms_norm import triton_kernel as add_rms_norm
from kernels.block_copy import triton_kernel as block_copy
from kernels.gated_activation import triton_kernel as gated_activation
from kernels.paged_attention import triton_decode, triton_kernel
from kernels.quantized_kv import reference as kv_reference
from kernels.quantized_linear import triton_kernel as quantized_linear
from kernels.quantized_linear.weights import quantize_channels, quantize_groups
from kernels.sampling import triton_kernel as sampling
from kernels.token_log_probs import triton_kernel as token_log_probs

from .batches import make_batch
from .measure import Bench, Ceilings, Result

GOALS = {"64 x 1 rows, 8192 keys": 0.85, "1 x 8192 rows, 8192 keys": 0.60}
_Measured = tuple[Work, Callable[[], object]]


def run(bench: Bench, tops: Ceilings) -> Iterator[Result]:
    """One result per kernel and shape."""
    for work, launch in _attention(bench):
        yield _result(bench, tops, work, launch)
    for work, launch in [*_linear(bench), *_rows(bench)]:
        yield _result(bench, tops, work, launch)


def _result(bench: Bench, tops: Ceilings, work: Work, launch: Callable[[], object]) -> Result:
    name = f"{work.kernel}: {work.shape}"
    if bench.over():
        return Result("rate", name, "left out: time is up")
    seconds = bench.seconds(launch)
    share = max(work.moved / tops.bandwidth, work.computed / tops.rate) / seconds
    if bench.toy:
        return Result("rate", name, "ran")
    goal = next((goal for shape, goal in GOALS.items() if work.shape.endswith(shape)), None)
    ok = None if goal is None else share >= goal
    rate = f"{work.moved / seconds / 1e9:.0f} GB/s, {work.computed / seconds / 1e12:.1f} Tflop/s"
    return Result("rate", name, f"{seconds * 1e6:.1f} µs, {rate}", ok=ok, share=share)


def _attention(bench: Bench) -> Iterator[_Measured]:
    # The interpreter multiplies no bfloat16.
    dtype = torch.float32 if bench.toy else torch.bfloat16
    heads = {"heads": LLAMA.heads, "kv_heads": LLAMA.kv_heads, "size": LLAMA.size, "dtype": dtype}
    for batch, keys in ((1, 8192), (64, 1024), (64, 8192), (256, 1024)):
        count, length = bench.pick(batch, 2), bench.pick(keys, 64)
        arguments = make_batch([(1, length)] * count, bench.device, **heads).arguments()  # type: ignore[arg-type]
        yield attention(LLAMA, count, 1, length), lambda a=arguments: triton_decode.paged_attention(*a)
    q, pool, *rest = arguments
    numbers, scales = kv_reference.quantize(pool.nan_to_num(), torch.int8)  # type: ignore[attr-defined]
    yield (
        attention(LLAMA, count, 1, length, 1),
        lambda: triton_decode.paged_attention(q, numbers, *rest, scales),  # type: ignore[arg-type]
    )
    for batch, rows in ((1, 8192), (4, 512)):
        count, length = bench.pick(batch, 1), bench.pick(rows, 20)
        arguments = make_batch([(length, length)] * count, bench.device, **heads).arguments()  # type: ignore[arg-type]
        yield attention(LLAMA, count, length, length), lambda a=arguments: triton_kernel.paged_attention(*a)


def _linear(bench: Bench) -> Iterator[_Measured]:
    dtype = torch.float32 if bench.toy else torch.bfloat16
    inputs, outputs = bench.pick(LLAMA.hidden, 128), bench.pick(2 * LLAMA.inner, 64)
    wide = torch.randn(outputs, inputs, device=bench.device)
    for weight_bytes, weight in ((1, quantize_channels(wide, torch.int8)), (0.5625, quantize_groups(wide, 128))):
        for rows in (1, 64):
            x = torch.randn(rows, inputs, device=bench.device, dtype=dtype)
            yield linear(LLAMA, rows, weight_bytes), lambda x=x, w=weight: quantized_linear.linear(x, w, None)


def _rows(bench: Bench) -> Iterator[_Measured]:
    dtype = torch.float32 if bench.toy else torch.bfloat16
    rows = bench.pick(64, 2)
    hidden, inner, vocab = bench.pick(LLAMA.hidden, 64), bench.pick(LLAMA.inner, 64), bench.pick(LLAMA.vocab, 300)
    works = {work.kernel: work for work in pointwise(LLAMA, rows)}
    x = torch.randn(rows, hidden, device=bench.device, dtype=dtype)
    gate_up = torch.randn(rows, 2 * inner, device=bench.device, dtype=dtype)
    logits = torch.randn(rows, vocab, device=bench.device)
    drawn = _row_sampling(rows, bench.device)
    tokens = torch.zeros(rows, dtype=torch.int64, device=bench.device)
    yield works["add_rms_norm"], lambda: add_rms_norm.add_rms_norm(x, x, x[0], 1e-5, 0.0)
    yield works["gated_activation"], lambda: gated_activation.gated_activation(gate_up, "silu")
    yield works["sample, no filter"], lambda: sampling.sample(logits, drawn, False)
    yield works["sample, filtered"], lambda: sampling.sample(logits, drawn, True)
    yield works["token_log_probs"], lambda: token_log_probs.token_log_probs(logits, tokens)
    blocks = bench.pick(64, 2)
    pool = torch.zeros(
        2 * blocks, bench.pick(LLAMA.layers, 1), 2, LLAMA.kv_heads, 16, LLAMA.size, dtype=dtype, device=bench.device
    )
    ids = torch.arange(2 * blocks, device=bench.device)
    yield copies(LLAMA, blocks), lambda: block_copy.copy_blocks(pool, ids[:blocks], ids[blocks:])


def _row_sampling(rows: int, device: torch.device) -> sampling.RowSampling:
    whole = torch.arange(rows, device=device)
    return sampling.RowSampling(
        temperature=torch.full((rows,), 0.8, device=device),
        top_k=torch.full((rows,), 50, dtype=torch.int32, device=device),
        top_p=torch.full((rows,), 0.9, device=device),
        min_p=torch.zeros(rows, device=device),
        seed=whole,
        position=whole.int(),
    )
