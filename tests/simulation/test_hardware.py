"""The roofline against sums done by hand."""

from __future__ import annotations

import pytest

from backend.request import Request, Sequence
from backend.sampling_params import SamplingParams
from backend.scheduler.plan import BlockCopies, Chunk, StepPlan
from scripts.simulation.hardware import PLATFORMS, ModelShape, Platform

# 1,000 weights of 2 bytes; a token's keys and values: 2 * 1 layer * 1 head * 10 elements * 2 bytes = 40 bytes.
TOY = ModelShape(parameters=1000, layers=1, heads=1, kv_heads=1, head_dim=10)
# 10,000 FLOP/s and 1,000 bytes/s are left of the peaks; a block of 16 tokens is 640 bytes, 640 a second.
MACHINE = Platform(
    name="toy", model=TOY, flops=20_000, bandwidth=2000, memory=1e6, overhead=0.5, mfu=0.5, efficiency=0.5,
    copy_bandwidth=640,
)  # fmt: skip


def sequence(prompt: int, computed: int) -> Sequence:
    made = Sequence(
        Request(request_id=0, prompt=(1,) * prompt, sampling=SamplingParams(max_tokens=9), level=1, arrival=0)
    )
    made.num_computed = computed
    return made


def plan(decodes: list[Sequence], chunks: list[Chunk], copies: int = 0) -> StepPlan:
    return StepPlan(1, decodes, chunks, BlockCopies([(1, 1)] * copies, [], [], []))


def test_a_decode_step_is_bound_by_weights_and_keys() -> None:
    # bytes: 2,000 + 40 * (30 + 20) = 4,000, so 4 s; FLOPs: 2 * 1,000 * 2 + 40 * 50 = 6,000, so 0.6 s
    assert MACHINE.step_seconds(plan([sequence(30, 30), sequence(20, 20)], [])) == pytest.approx(4.5)


def test_a_long_chunk_is_bound_by_arithmetic_and_sees_only_what_precedes_it() -> None:
    # 40 tokens after 10: pairs 11 + 12 + ... + 50 = 1,220. FLOPs 80,000 + 40 * 1,220 = 128,800; bytes 2,000 + 2,000
    chunk = Chunk(sequence(50, 50), 10, 40, True)
    assert MACHINE.step_seconds(plan([], [chunk])) == pytest.approx(12.88 + 0.5)


def test_copies_come_on_top() -> None:
    assert MACHINE.step_seconds(plan([sequence(50, 50)], [], copies=3)) == pytest.approx(4.0 + 3 * 1.0 + 0.5)


def test_the_published_shapes_have_the_known_sizes() -> None:
    assert PLATFORMS["h100-8b"].model.kv_bytes_per_token == 131_072  # 128 KiB
    assert PLATFORMS["h100x4-70b"].model.kv_bytes_per_token == 327_680  # 320 KiB
    assert PLATFORMS["h200-70b-fp8"].model.weight_bytes == 70.6e9
    for platform in PLATFORMS.values():
        assert platform.pool_tokens > 100_000
        assert platform.costs.prefers_swap(1600, 100)


def test_a_small_batch_on_an_h100_takes_the_time_of_reading_the_weights() -> None:
    # 16.06 GB at 2.68 TB/s are 5.99 ms; one millisecond of overhead
    assert PLATFORMS["h100-8b"].seconds(1, 0, 0) == pytest.approx(0.00699, rel=1e-3)
