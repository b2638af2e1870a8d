"""The engine's own families, ``inflight_*``."""

from __future__ import annotations

from collections.abc import Callable

from backend.serving.metrics.counts import LevelCounts
from backend.serving.metrics.family import Family, Kind, Source, Value


def _by_level(name: str, kind: Kind, meaning: str, value: Callable[[LevelCounts], Value]) -> Family:
    def read(source: Source) -> list[tuple[tuple[str, ...], Value]]:
        return [((str(level),), value(of)) for level, of in source.counts.levels.copy().items()]

    return Family(name, kind, ("level",), meaning, read)


def num_used(source: Source) -> int:
    """Pool blocks that are neither free nor cached."""
    pool = source.scheduler.pool
    return pool.num_usable - pool.num_free - pool.num_cached


def _preemptions(source: Source) -> list[tuple[tuple[str, ...], Value]]:
    found = dict.fromkeys(((level, mode) for level in source.counts.levels.copy() for mode in ("recompute", "swap")), 0)
    found |= source.scheduler.population.preemptions.copy()
    return [((str(level), mode), count) for (level, mode), count in found.items()]


def _waiting(source: Source) -> list[tuple[tuple[str, ...], Value]]:
    found = dict.fromkeys(source.counts.levels.copy(), 0) | source.scheduler.population.waiting.by_level.copy()
    return [((str(level),), count) for level, count in found.items()]


_COUNTER, _GAUGE, _HISTOGRAM = Kind

ENGINE_FAMILIES = (
    Family(
        "inflight_requests_total",
        _COUNTER,
        ("outcome", "level"),
        "Requests that have ended, each exactly once: eos, stop, length, cancelled, timeout, error, or refused by the "
        "model (level none: before its level was known). Each sequence of num_return_sequences counts as one; what "
        "Triton Server's own queue refuses or drops is in nv_inference_request_failure.",
        lambda source: source.counts.outcomes().items(),
    ),
    Family.single(
        "inflight_loaded_timestamp_seconds",
        _GAUGE,
        "Unix time, in whole seconds, at which the model was loaded; it changes with each start of the server.",
        lambda source: int(source.counts.loaded_at),
    ),
    Family.single(
        "inflight_slots",
        _GAUGE,
        "Sequences that can run at the same time.",
        lambda source: source.scheduler.settings.max_batch_size,
    ),
    Family.single(
        "inflight_running_sequences",
        _GAUGE,
        "Sequences that hold a slot.",
        lambda source: source.scheduler.population.num_running,
    ),
    Family.single(
        "inflight_waiting_sequences",
        _GAUGE,
        "Sequences in the engine without a slot, preempted ones among them; not those in Triton Server's own queue.",
        lambda source: source.num_held(),
    ),
    Family(
        "inflight_waiting_level_sequences",
        _GAUGE,
        ("level",),
        "The waiting ones by level; without those that arrived since the last step was planned.",
        _waiting,
    ),
    Family.single(
        "inflight_swapped_sequences",
        _GAUGE,
        "Waiting sequences whose blocks lie in host memory.",
        lambda source: source.scheduler.residency.num_swapped,
    ),
    Family.single(
        "inflight_pool_blocks",
        _GAUGE,
        "Blocks of the KV pool: used + cached + free.",
        lambda source: source.scheduler.pool.num_usable,
    ),
    Family.single(
        "inflight_pool_blocks_used",
        _GAUGE,
        "Pool blocks that sequences hold, or that a step under way may still touch.",
        num_used,
    ),
    Family.single(
        "inflight_pool_blocks_cached",
        _GAUGE,
        "Pool blocks that nobody holds and whose prefix can be found again; given up when blocks are short.",
        lambda source: source.scheduler.pool.num_cached,
    ),
    Family.single(
        "inflight_pool_blocks_free",
        _GAUGE,
        "Pool blocks that hold nothing.",
        lambda source: source.scheduler.pool.num_free,
    ),
    Family(
        "inflight_preemptions_total",
        _COUNTER,
        ("level", "mode"),
        "Preemptions by the level of the victim and by what happened to its blocks: swap or recompute.",
        _preemptions,
    ),
    Family.single(
        "inflight_recomputed_tokens_total",
        _COUNTER,
        "Computed tokens whose blocks a preemption took and that are to be computed again, unless they are still "
        "found in the prefix cache.",
        lambda source: source.scheduler.residency.recomputed_tokens,
    ),
    Family.single(
        "inflight_swapped_blocks_total",
        _COUNTER,
        "Blocks copied out to host memory by preemptions.",
        lambda source: source.scheduler.residency.swapped_blocks,
    ),
    Family.single(
        "inflight_prefix_hit_tokens_total",
        _COUNTER,
        "Tokens that were not computed since their blocks were found in the prefix cache or shared with a sibling.",
        lambda source: source.scheduler.residency.hit_tokens,
    ),
    Family.single(
        "inflight_steps_total",
        _COUNTER,
        "Engine steps.",
        lambda source: source.counts.steps,
    ),
    Family.single(
        "inflight_step_tokens_total",
        _COUNTER,
        "Tokens computed by steps, prompt and generated; divided by the steps: tokens per step.",
        lambda source: source.counts.step_tokens,
    ),
    Family.single(
        "inflight_step_sequences_total",
        _COUNTER,
        "Sequences computed for by steps; divided by the steps: mean batch size.",
        lambda source: source.counts.step_sequences,
    ),
    Family.single(
        "inflight_step_seconds",
        _HISTOGRAM,
        "Duration of a step, from its launch to its last token.",
        lambda source: source.counts.step_seconds.read(),
    ),
    _by_level(
        "inflight_prompt_tokens_total",
        _COUNTER,
        "Prompt tokens of the requests that the engine has taken in.",
        lambda level: level.prompt_tokens,
    ),
    _by_level(
        "inflight_generated_tokens_total",
        _COUNTER,
        "Tokens handed out to clients.",
        lambda level: level.generated_tokens,
    ),
    _by_level(
        "inflight_time_to_first_token_seconds",
        _HISTOGRAM,
        "From a request's arrival at the engine to its first token.",
        lambda level: level.time_to_first_token.read(),
    ),
    _by_level(
        "inflight_inter_token_seconds",
        _HISTOGRAM,
        "Between two tokens of a request, preemptions included.",
        lambda level: level.gap.read(),
    ),
    _by_level(
        "inflight_queue_seconds",
        _HISTOGRAM,
        "From a request's arrival at the engine to its first slot; observed when it ends, if it ever got one.",
        lambda level: level.queue.read(),
    ),
    _by_level(
        "inflight_end_to_end_seconds",
        _HISTOGRAM,
        "From a request's arrival at the engine to its end, however it ended.",
        lambda level: level.whole.read(),
    ),
    Family.single(
        "inflight_request_prompt_tokens",
        _HISTOGRAM,
        "Length of the prompt, of the requests that were taken in and have ended.",
        lambda source: source.counts.prompt_lengths.read(),
    ),
    Family.single(
        "inflight_request_generated_tokens",
        _HISTOGRAM,
        "Tokens generated, of the requests that were taken in and have ended.",
        lambda source: source.counts.output_lengths.read(),
    ),
    Family.single(
        "inflight_request_sequences",
        _HISTOGRAM,
        "Sequences asked for (num_return_sequences), of the requests that were not refused.",
        lambda source: source.counts.sequences.read(),
    ),
)
