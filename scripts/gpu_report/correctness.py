"""Every kernel against its torch reference, on the device at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from kernels.add_rms_norm import reference as add_reference
from kernels.add_rms_norm import triton_kernel as add_triton
from kernels.block_copy import reference as copy_reference
from kernels.block_copy import triton_kernel as copy_triton
from kernels.gated_activation import reference as gate_reference
from kernels.gated_activation import triton_kernel as gate_triton
from kernels.paged_attention import reference as attention_reference
from kernels.paged_attention import triton_decode, triton_kernel
from kernels.penalties import reference as penalties_reference
from kernels.penalties import triton_kernel as penalties_triton
from kernels.quantized_kv import reference as kv_reference
from kernels.quantized_kv import triton_kernel as kv_triton
from kernels.quantized_linear import reference as linear_reference
from kernels.quantized_linear import triton_kernel as linear_triton
from kernels.quantized_linear.weights import quantize_channels, quantize_groups
from kernels.rope_and_write import reference as rope_reference
from kernels.rope_and_write import triton_kernel as rope_triton
from kernels.sampling import reference as sampling_reference
from kernels.sampling import triton_kernel as sampling_triton
from kernels.token_log_probs import reference as log_probs_reference
from kernels.token_log_probs import triton_kernel as log_probs_triton

from .batches import make_batch
from .measure import Bench, Result

_Pair = tuple[Tensor, Tensor]  # found, expected
_Check = tuple[str, Callable[[], _Pair], float]
_NARROW = 2e-2


_FIRST = (
    "mixed attention D128 group 4 ",
    "decode attention D128 group 4 ",
    "rope_and_write, pool in torch.bfloat16",
    "add_rms_norm",
    "silu",
    "sampled tokens, filter none",
    "sampled tokens, filter all",
)
"""Checks of what every step of a model runs; compiling the others takes a minute or more."""


def run(bench: Bench, first: bool) -> Iterator[Result]:
    """One result per check: the largest difference, relative to the largest magnitude expected.

    first: the checks of what every step runs, or all others.
    """
    torch.manual_seed(0)
    for name, compare, tolerance in _checks(bench):
        if name.startswith(_FIRST) != first:
            continue
        if bench.over():
            yield Result("correctness", name, "left out: time is up")
            continue
        try:
            found, expected = (x.float() for x in compare())
        except Exception as error:  # the report must say which kernels fail, not stop at the first
            yield Result("correctness", name, f"{type(error).__name__}: {str(error)[:80]}", ok=False)
            continue
        error_share = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-9))
        yield Result("correctness", name, f"{error_share:.1e} of {tolerance:.0e}", ok=error_share <= tolerance)


def _checks(bench: Bench) -> Iterator[_Check]:
    # The interpreter multiplies no bfloat16, so toys are float32.
    dtype = torch.float32 if bench.toy else torch.bfloat16
    tolerance = 1e-4 if bench.toy else _NARROW
    yield from ((name, compare, tolerance) for name, compare in _attention_checks(bench, dtype))
    yield from ((name, compare, tolerance) for name, compare in _row_checks(bench, dtype))
    yield from _sampling_checks(bench)


def _attention_checks(bench: Bench, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], _Pair]]]:
    lengths = (1, 40, 33) if bench.toy else (1, 1328, 8192, 463, 16, 17, 32001)
    mixed = [(1, 40), (5, 18), (9, 33)] if bench.toy else [(1, 1328), (5, 18), (129, 463), (1024, 1024), (1, 7)]
    for size, group, block_size in ((128, 4, 16), (64, 3, 16), (80, 1, 32), (256, 8, 16), (128, 7, 64)):
        shape: dict[str, Any] = {"heads": 2 * group, "kv_heads": 2, "size": size, "block_size": block_size}
        shape["dtype"] = dtype
        label = f"D{size} group {group} block {block_size}"
        yield f"mixed attention {label}", lambda s=shape: _attend(triton_kernel, bench, mixed, s)
        alone = [(1, length) for length in lengths]
        yield f"decode attention {label}", lambda s=shape, a=alone: _attend(triton_decode, bench, a, s)
    small: dict[str, Any] = {"heads": 8, "kv_heads": 2, "size": 64, "dtype": dtype}
    for window, softcap in ((21, None), (None, 5.0)):
        yield (
            f"window {window}, cap {softcap}",
            lambda w=window, c=softcap: _attend(triton_kernel, bench, mixed, small, w, c),
        )
    for kind in (torch.int8, torch.float8_e4m3fn):
        if bench.toy or kind == torch.int8 or torch.cuda.get_device_capability() >= (8, 9):
            yield f"attention, pool in {kind}", lambda k=kind: _attend_quantized(bench, mixed, small, k)


def _attend(
    room: Any,
    bench: Bench,
    shapes: list[tuple[int, int]],
    options: dict[str, Any],
    window: int | None = None,
    softcap: float | None = None,
) -> _Pair:
    arguments = make_batch(shapes, bench.device, **options).arguments(window, softcap)
    return room.paged_attention(*arguments), attention_reference.paged_attention(*arguments)  # type: ignore[arg-type]


def _attend_quantized(bench: Bench, shapes: list[tuple[int, int]], options: dict[str, Any], kind: torch.dtype) -> _Pair:
    batch = make_batch(shapes, bench.device, **options)
    numbers, scales = kv_reference.quantize(batch.pool.nan_to_num(), kind)
    q, _, *rest = batch.arguments()
    found = kv_triton.paged_attention(q, numbers, scales, *rest)  # type: ignore[arg-type]
    return found, kv_reference.paged_attention(q, numbers, scales, *rest)  # type: ignore[arg-type]


def _row_checks(bench: Bench, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], _Pair]]]:
    size = bench.pick(4096, 128)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, device=bench.device, dtype=dtype)

    x, y, weight = random(7, size), random(7, size), random(size)
    yield "add_rms_norm", lambda: _both(add_triton.add_rms_norm, add_reference.add_rms_norm, x, y, weight, 1e-5, 0.0)
    gates = gate_triton.gated_activation, gate_reference.gated_activation
    for activation in ("silu", "gelu_tanh"):
        yield activation, lambda a=activation: _both(*gates, x, a)
    for kind in (dtype, torch.int8):
        yield f"rope_and_write, pool in {kind}", lambda k=kind: _rope_and_write(bench, dtype, k)
    wide = random(bench.pick(512, 24), size).float()
    for name, made in (
        *((f"linear int4 groups of {n}", quantize_groups(wide, n)) for n in (32, 128)),
        ("linear int8", quantize_channels(wide, torch.int8)),
    ):
        for rows in (1, 200):
            x_rows = random(rows, size)
            yield (
                f"{name}, {rows} rows",
                lambda a=x_rows, w=made: _both(linear_triton.linear, linear_reference.linear, a, w, None),
            )
    yield "copies", lambda: _copies(bench)


def _both(found: Callable[..., Any], expected: Callable[..., Any], *arguments: object) -> _Pair:
    pair = found(*arguments), expected(*arguments)
    return tuple(torch.cat(x) if isinstance(x, tuple) else x for x in pair)  # type: ignore[return-value]


def _rope_and_write(bench: Bench, dtype: torch.dtype, kind: torch.dtype) -> _Pair:
    device = bench.device
    qkv, angles = torch.randn(9, 8 * 64, device=device, dtype=dtype), torch.randn(9, 32, device=device)
    slots, norm = torch.randperm(48, device=device)[:9] + 16, torch.randn(64, device=device, dtype=dtype)
    results = []
    for room in (rope_triton, rope_reference):
        pool = torch.zeros(4, 1, 2, 2, 16, 64, device=device, dtype=kind)
        scales = torch.zeros(pool.shape[:-1], device=device) if kind == torch.int8 else None
        arguments = (qkv, angles.cos(), angles.sin(), pool, 0, slots, norm, norm, 1e-5, 0.0, scales)
        q = room.rope_and_write(*arguments)
        wide = pool.float() if scales is None else pool.float() * scales[..., None]
        results.append(torch.cat((q.float().flatten(), wide.flatten())))
    return results[0], results[1]


def _copies(bench: Bench) -> _Pair:
    original = torch.randn(9, 2, 2, 2, 16, 64, device=bench.device)
    ids = torch.tensor([[1, 7], [3, 2], [5, 6]], device=bench.device)
    results = []
    for room in (copy_triton, copy_reference):
        pool, staging = original.clone(), torch.zeros_like(original[:2])
        room.copy_blocks(pool, ids[0], ids[1])
        room.gather_blocks(pool, ids[1], staging)
        room.scatter_blocks(staging, ids[2], pool)
        results.append(pool)
    return results[0], results[1]


def _sampling_checks(bench: Bench) -> Iterator[_Check]:
    vocab, count = bench.pick(128256, 300), bench.pick(24, 4)
    logits = torch.randn(count, vocab, device=bench.device) * 3
    filters = {"none": (0, 1.0, 0.0), "top-k": (40, 1.0, 0.0), "top-p": (0, 0.9, 0.0), "all": (50, 0.95, 0.02)}
    for name, cut in filters.items():
        # A token may differ where two candidates differ by less than the chip's logarithms are exact to.
        yield f"sampled tokens, filter {name}", lambda c=cut: _sampled(logits, *c), 0.05
    tokens = torch.arange(count, device=bench.device)
    yield (
        "token_log_probs",
        lambda: _both(log_probs_triton.token_log_probs, log_probs_reference.token_log_probs, logits, tokens),
        1e-5,
    )
    counts = torch.randint(0, 3, logits.shape, device=bench.device, dtype=torch.int32)
    factors = [torch.rand(count, device=bench.device) + 0.5 for _ in range(3)]
    ids = torch.arange(5, device=bench.device, dtype=torch.int32).expand(count, 5).contiguous()
    bias = torch.randn(count, 5, device=bench.device)
    yield (
        "penalise",
        lambda: _both(
            penalties_triton.penalise, penalties_reference.penalise, logits, counts, counts > 1, *factors, ids, bias
        ),
        1e-5,
    )


def _sampled(logits: Tensor, top_k: int, top_p: float, min_p: float) -> _Pair:
    """Share of rows whose token is not the reference's, against none."""
    count, device = logits.shape[0], logits.device
    rows = sampling_triton.RowSampling(
        temperature=torch.full((count,), 0.75, device=device),
        top_k=torch.full((count,), top_k, dtype=torch.int32, device=device),
        top_p=torch.full((count,), top_p, device=device),
        min_p=torch.full((count,), min_p, device=device),
        seed=torch.arange(count, dtype=torch.int64, device=device),
        position=torch.arange(count, dtype=torch.int32, device=device) + 5,
    )
    found = sampling_triton.sample(logits, rows, filtered=bool(top_k or top_p < 1 or min_p)).tolist()
    host = logits.cpu()
    expected = [
        int(sampling_reference.draw(sampling_reference.filter_logits(host[i], 0.75, top_k, top_p, min_p), i, i + 5))
        for i in range(count)
    ]
    different = sum(a != b for a, b in zip(found, expected, strict=True)) / count
    return torch.tensor(1 + different), torch.tensor(1.0)
