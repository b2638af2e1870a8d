"""The same values under the names that dashboards for TensorRT-LLM's and vLLM's backends know.

What has no counterpart here is left out: runtime memory, micro batches, the V1 batcher, disaggregated serving.
"""

from __future__ import annotations

from collections.abc import Callable

from backend.serving.metrics.counts import FIRST_TOKEN_SECONDS, LevelCounts
from backend.serving.metrics.engine_families import num_used
from backend.serving.metrics.family import Family, Kind, Source
from backend.serving.metrics.histogram import Histogram, Reading, together

FIRST_TOKEN_BOUNDS = FIRST_TOKEN_SECONDS[:-1]
PER_TOKEN_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
WHOLE_BOUNDS = (1, 2.5, 5, 10, 15, 20, 30, 40, 50, 60)
LENGTH_BOUNDS = (10, 50, 100, 500, 1000)
_FRACTION_STEPS = 1024  # gauges are published as differences; these add up without a rest


def _requests(source: Source) -> dict[str, float]:
    population, waiting = source.scheduler.population, source.num_held()
    running, prefilling = population.num_running, len(population.prefilling)
    return {
        "active": running + waiting,
        "max": source.scheduler.settings.max_batch_size,
        "scheduled": running,
        "context": prefilling,
        "waiting": waiting,
    }


def _blocks(source: Source) -> dict[str, float]:
    scheduler = source.scheduler
    most, used, block = scheduler.pool.num_usable, num_used(source), scheduler.settings.block_size
    return {
        "max": most,
        "free": most - used,
        "used": used,
        "tokens_per": block,
        "reused": scheduler.residency.hit_tokens // block,
        "fraction": round(used / most * _FRACTION_STEPS) / _FRACTION_STEPS,
    }


def _batcher(source: Source) -> dict[str, float]:
    population = source.scheduler.population
    return {
        "total_context_tokens": source.counts.last_chunk_tokens,
        "generation_requests": len(population.decoding),
        "paused_requests": population.num_paused,
    }


def _general(source: Source) -> dict[str, float]:
    return {"timestamp": int(source.counts.last_step_at), "iteration_counter": source.counts.steps}


def _gauges(name: str, label: str, meaning: str, read: Callable[[Source], dict[str, float]]) -> Family:
    return Family(
        name, Kind.GAUGE, (label,), meaning, lambda source: [((key,), value) for key, value in read(source).items()]
    )


def _lengths(name: str, value: str, meaning: str, read: Callable[[Source], Histogram]) -> Family:
    return Family(
        name,
        Kind.HISTOGRAM,
        ("response_metric_type",),
        meaning,
        lambda source: [((value,), read(source).read().at(LENGTH_BOUNDS))],
    )


def _all_levels(read: Callable[[LevelCounts], Histogram], bounds: tuple[float, ...]) -> Callable[[Source], Reading]:
    return lambda source: together(read(level).read() for level in source.counts.levels.copy().values()).at(bounds)


def _tokens(read: Callable[[LevelCounts], int]) -> Callable[[Source], int]:
    return lambda source: sum(read(level) for level in source.counts.levels.copy().values())


def _vllm(name: str, kind: Kind, meaning: str, value: Callable[[Source], float | Reading]) -> Family:
    return Family.single(f"vllm:{name}", kind, meaning, value)


ALIAS_FAMILIES = (
    _gauges(
        "nv_trt_llm_request_metrics",
        "request_type",
        "Requests: active = scheduled + waiting, max = slots, scheduled = running, context = of these, those whose "
        "prompt is being computed, waiting.",
        _requests,
    ),
    _gauges(
        "nv_trt_llm_kv_cache_block_metrics",
        "kv_cache_block_type",
        "Pool blocks: max, used, free (cached ones among them), tokens_per (of a block), reused (hit tokens by "
        "tokens_per, so far), fraction = used / max to 1/1024. The endpoint-load-metrics header is made from these.",
        _blocks,
    ),
    _gauges(
        "nv_trt_llm_inflight_batcher_metrics",
        "inflight_batcher_specific_metric",
        "total_context_tokens: of the last step, those in chunks of more than one; generation_requests: sequences that "
        "decode; paused_requests: preempted ones that wait.",
        _batcher,
    ),
    _gauges(
        "nv_trt_llm_general_metrics",
        "general_type",
        "timestamp: Unix time of the last step, 0 before the first; iteration_counter: steps.",
        _general,
    ),
    _lengths(
        "nv_llm_input_token_len",
        "total_input_tokens",
        "As inflight_request_prompt_tokens.",
        lambda source: source.counts.prompt_lengths,
    ),
    _lengths(
        "nv_llm_output_token_len",
        "total_output_tokens",
        "As inflight_request_generated_tokens.",
        lambda source: source.counts.output_lengths,
    ),
    _vllm(
        "prompt_tokens_total",
        Kind.COUNTER,
        "As inflight_prompt_tokens_total, of all levels.",
        _tokens(lambda level: level.prompt_tokens),
    ),
    _vllm(
        "generation_tokens_total",
        Kind.COUNTER,
        "As inflight_generated_tokens_total, of all levels.",
        _tokens(lambda level: level.generated_tokens),
    ),
    _vllm(
        "time_to_first_token_seconds",
        Kind.HISTOGRAM,
        "As inflight_time_to_first_token_seconds, of all levels.",
        _all_levels(lambda level: level.time_to_first_token, FIRST_TOKEN_BOUNDS),
    ),
    _vllm(
        "time_per_output_token_seconds",
        Kind.HISTOGRAM,
        "As inflight_inter_token_seconds, of all levels.",
        _all_levels(lambda level: level.gap, PER_TOKEN_BOUNDS),
    ),
    _vllm(
        "e2e_request_latency_seconds",
        Kind.HISTOGRAM,
        "As inflight_end_to_end_seconds, of all levels.",
        _all_levels(lambda level: level.whole, WHOLE_BOUNDS),
    ),
    _vllm(
        "request_prompt_tokens",
        Kind.HISTOGRAM,
        "As inflight_request_prompt_tokens.",
        lambda source: source.counts.prompt_lengths.read(),
    ),
    _vllm(
        "request_generation_tokens",
        Kind.HISTOGRAM,
        "As inflight_request_generated_tokens.",
        lambda source: source.counts.output_lengths.read(),
    ),
    _vllm(
        "request_params_n",
        Kind.HISTOGRAM,
        "As inflight_request_sequences.",
        lambda source: source.counts.sequences.read(),
    ),
)
