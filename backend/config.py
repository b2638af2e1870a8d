"""EngineConfig: every knob of the engine, with its range, parsed once from config.pbtxt's parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from backend.beam_params import MOST_BEAMS
from backend.errors import ConfigError

POLICIES = ("max_utilization", "guaranteed_no_evict")
PREEMPTION_MODES = ("auto", "recompute", "swap")
DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "bfloat16", "float16", "float32")
WEIGHT_PRECISIONS = ("auto", "float32", "int8")
ACTIVATION_PRECISIONS = ("auto", "int16", "int8")
KV_CACHE_PRECISIONS = ("auto", "float32", "float16", "int16")
LOG_LEVELS = ("error", "warning", "info", "verbose")


def _knob(default: Any, check: Callable[[Any], bool], allowed: str, meaning: str) -> Any:
    return field(default=default, metadata={"check": check, "allowed": allowed, "meaning": meaning})


def _integer(default: int, low: int, high: int, meaning: str) -> Any:
    return _knob(default, lambda v: low <= v <= high, f"an integer in [{low}, {high}]", meaning)


def _choice(default: str, choices: tuple[str, ...], meaning: str) -> Any:
    return _knob(default, lambda v: v in choices, "one of " + ", ".join(choices), meaning)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """What one engine is built with. Field names are the keys of config.pbtxt's ``parameters``.

    Names follow TensorRT-LLM's where it has the knob. Units are in each field's meaning.
    """

    model_dir: str = _knob("", bool, "a directory", "Hugging Face directory of the model")
    device: str = _choice("auto", DEVICES, "where the model runs; auto is the GPU if there is one")
    dtype: str = _choice(
        "auto", DTYPES, "of weights and pool; auto is the checkpoint's on a GPU; the CPU computes in float32 only"
    )
    max_batch_size: int = _integer(32, 1, 4096, "slots: sequences that run at the same time")
    max_num_tokens: int = _integer(512, 1, 1 << 20, "tokens that one step may compute")
    max_beam_width: int = _integer(8, 1, MOST_BEAMS, "beams of one request; each takes a slot")
    max_seq_len: int = _integer(0, 0, 1 << 24, "prompt + output tokens of a request; 0 = what model and pool allow")
    max_tokens_in_paged_kv_cache: int = _integer(0, 0, 1 << 31, "tokens the pool holds; 0 = a share of free memory")
    kv_cache_free_gpu_mem_fraction: float = _knob(
        0.0,
        lambda v: 0 <= v <= 0.95,
        "a number in [0, 0.95]",
        "share of free memory for an automatic pool; 0 = 0.9 of a GPU's, 0.25 of main memory, which others need too",
    )
    tokens_per_block: int = _knob(16, lambda v: v in (8, 16, 32, 64), "8, 16, 32 or 64", "token slots of a block")
    batch_scheduler_policy: str = _choice(
        "max_utilization", POLICIES, "admit what fits now and preempt later, or only what fits to its end"
    )
    enable_kv_cache_reuse: bool = _knob(True, lambda v: True, "true or false", "find computed prefixes again")
    kv_cache_host_memory_bytes: int = _integer(0, 0, 1 << 50, "host memory for swapped-out sequences; 0 = recompute")
    preemption_mode: str = _choice("auto", PREEMPTION_MODES, "what happens to a preempted sequence's blocks")
    preemption_cap: int = _integer(3, 0, 1 << 20, "preemptions after which a sequence is held to its end")
    free_block_reserve: float = _knob(
        0.02, lambda v: 0 <= v <= 0.5, "a number in [0, 0.5]", "share of the pool kept for growth while something runs"
    )
    ageing_seconds: float = _knob(
        30.0, lambda v: 0 <= v < 1e9, "seconds, 0 = never", "waiting time that raises a request's order by one level"
    )
    target_inter_token_ms: float = _knob(
        150.0,
        lambda v: 0 <= v < 1e9,
        "milliseconds, 0 = none",
        "step time that prompt chunks are cut to while others decode",
    )
    max_step_ms: float = _knob(
        60.0,
        lambda v: 0 <= v < 1e9,
        "milliseconds, 0 = none",
        "step time that prompt chunks below level 1 are cut to where an urgent arrival has to wait for a step to end",
    )
    enable_overlap: bool = _knob(True, lambda v: True, "true or false", "plan a step before the last one is processed")
    weight_precision: str = _choice(
        "auto", WEIGHT_PRECISIONS, "how the CPU keeps matrices; int8: a scale per output, which auto is there"
    )
    activation_precision: str = _choice(
        "auto",
        ACTIVATION_PRECISIONS,
        "what the CPU rounds activations to beside 8-bit matrices; auto goes by processor",
    )
    kv_cache_precision: str = _choice(
        "auto", KV_CACHE_PRECISIONS, "how the CPU keeps keys and values; auto goes by matrices and processor"
    )
    batch_invariant: bool = _knob(
        False, lambda v: True, "true or false", "the same bits for a row whatever shares its batch; CPU only, slower"
    )
    num_threads: int = _integer(0, 0, 1024, "CPU threads of the engine; 0 = one per core")
    sender_threads: int = _integer(2, 1, 64, "threads that hand responses to Triton Server")
    stream_interval: int = _integer(1, 1, 1 << 20, "tokens in a streamed response, but for the first and the last")
    stream_pace_ms: float = _knob(
        -1.0,
        lambda v: v == -1 or 0 <= v <= 10_000,
        "-1 or milliseconds in [0, 10000]",
        "between responses of a stream, for each open one of its level or above; 0 = none; -1 = 40 on the CPU, else 0",
    )
    exclude_input_in_output: bool = _knob(
        False, lambda v: True, "true or false", "default of the input tensor of the same name"
    )
    default_priority_level: int = _integer(2, 1, 64, "level of a request that names none; 1 is the most urgent")
    priority_levels: int = _integer(3, 1, 64, "number of levels; more than this is refused")
    lookahead_requests: int = _integer(
        32, 1, 1 << 20, "waiting requests beyond which the server's queue is to hold them"
    )
    lookahead_bound: int = _integer(256, 1, 1 << 24, "waiting requests beyond which hardly any are let in")
    admission_interval_ms: float = _knob(
        20.0,
        lambda v: 0 < v <= 10_000,
        "milliseconds in (0, 10000]",
        "beyond the look-ahead one request per so long is let in",
    )
    cancel_poll_ms: float = _knob(
        50.0,
        lambda v: 0 < v <= 10_000,
        "milliseconds in (0, 10000]",
        "how often open requests are asked if they were cancelled",
    )
    stuck_seconds: float = _knob(
        300.0, lambda v: 0 <= v < 1e9, "seconds, 0 = never", "without a step despite work: the model ends itself"
    )
    control_dir: str = _knob(
        "", lambda v: True, "a directory", "where a launcher says by files that the server is to end; empty = none"
    )
    step_trace_file: str = _knob("", lambda v: True, "a file name", "one JSON line per step is appended; empty = none")
    otlp_endpoint: str = _knob(
        "",
        lambda v: True,
        "an address",
        "http://host:port of the OTLP collector that is told of requests; empty = none",
    )
    metrics: bool = _knob(True, lambda v: True, "true or false", "values of the engine in the server's metrics")
    metrics_aliases: bool = _knob(
        True, lambda v: True, "true or false", "the same values under TensorRT-LLM's and vLLM's names, too"
    )
    metrics_interval_ms: float = _knob(
        -1.0,
        lambda v: v == -1 or 10 <= v <= 60_000,
        "-1 or milliseconds in [10, 60000]",
        "how often changed values are handed to the server; -1 = 1000, while a CPU computes 5000",
    )
    log_level: str = _choice("info", LOG_LEVELS, "how much the engine says")

    def __post_init__(self) -> None:
        for knob in dataclasses.fields(self):
            value = getattr(self, knob.name)
            if not knob.metadata["check"](value):
                allowed = knob.metadata["allowed"]
                raise ConfigError(f"parameter {knob.name}: {value!r} is out of range, allowed is {allowed}")
        if self.max_num_tokens < self.max_batch_size:
            raise ConfigError(
                f"parameter max_num_tokens: {self.max_num_tokens} is below max_batch_size {self.max_batch_size}; "
                "each running sequence needs one token per step"
            )
        if self.default_priority_level > self.priority_levels:
            raise ConfigError(
                f"parameter default_priority_level: {self.default_priority_level} is above priority_levels "
                f"{self.priority_levels}"
            )

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> EngineConfig:
        """Read the ``string_value`` of each parameter; an empty one means the default.

        Raises ConfigError that names key, value and what is allowed; unknown keys are refused.
        """
        knobs = {knob.name: knob for knob in dataclasses.fields(cls)}
        unknown = sorted(set(parameters) - set(knobs))
        if unknown:
            raise ConfigError(f"parameter {unknown[0]} is unknown; known are: {', '.join(sorted(knobs))}")
        given: dict[str, Any] = {
            key: _parse(knobs[key], text.strip()) for key, text in parameters.items() if text.strip()
        }
        return cls(**given)


def _parse(knob: dataclasses.Field[Any], text: str) -> object:
    try:
        return _PARSERS[str(knob.type)](text)
    except (ValueError, KeyError) as error:
        message = f"parameter {knob.name}: {text!r} is not valid, allowed is {knob.metadata['allowed']}"
        raise ConfigError(message) from error


_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_PARSERS: dict[str, Callable[[str], object]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": lambda text: _BOOLEANS[text.lower()],
}
