"""A parameter that cannot be read ends the load with its key, its value and what is allowed."""

from __future__ import annotations

import dataclasses

import pytest

from backend.config import EngineConfig
from backend.errors import ConfigError

TEXTS = {"model_dir", "control_dir", "step_trace_file", "otlp_endpoint"}
# Key -> values that are out of its range or no value of its type at all. Every key but the free texts has a line.
BAD = {
    "device": ["gpu", "CPU"],
    "dtype": ["float64", "int8"],
    "max_batch_size": ["0", "-1", "4097", "8.5", "many", "1e3"],
    "max_beam_width": ["0", "-1", "65", "wide"],
    "max_num_tokens": ["0", "1048577", "lots"],
    "max_seq_len": ["-1", "16777217", "2k"],
    "max_tokens_in_paged_kv_cache": ["-1", "2147483649", "1GB"],
    "kv_cache_free_gpu_mem_fraction": ["-0.1", "0.96", "1", "90%", "nan"],
    "tokens_per_block": ["0", "12", "128", "sixteen"],
    "batch_scheduler_policy": ["static_batch", "MAX_UTILIZATION"],
    "enable_kv_cache_reuse": ["maybe", "2", "on"],
    "kv_cache_host_memory_bytes": ["-1", "1125899906842625", "2e9"],
    "preemption_mode": ["drop", "swap,recompute"],
    "preemption_cap": ["-1", "1048577", "none"],
    "free_block_reserve": ["-0.01", "0.51", "half"],
    "ageing_seconds": ["-1", "1e9", "inf", "nan", "never"],
    "target_inter_token_ms": ["-1", "1e9", "nan"],
    "max_step_ms": ["-0.5", "inf", "fast"],
    "enable_overlap": ["maybe"],
    "weight_precision": ["int4", "fp16"],
    "activation_precision": ["float16", "int4"],
    "kv_cache_precision": ["int8", "bfloat16"],
    "batch_invariant": ["sometimes"],
    "num_threads": ["-1", "1025", "all"],
    "sender_threads": ["0", "65", "two"],
    "stream_interval": ["0", "1048577", "1.5"],
    "stream_pace_ms": ["-2", "-0.5", "10001", "fast"],
    "exclude_input_in_output": ["none"],
    "default_priority_level": ["0", "65", "high"],
    "priority_levels": ["0", "65", "three"],
    "lookahead_requests": ["0", "1048577", "x"],
    "lookahead_bound": ["0", "16777217", "x"],
    "admission_interval_ms": ["0", "-1", "10001", "nan"],
    "cancel_poll_ms": ["0", "10001", "soon"],
    "stuck_seconds": ["-1", "1e9", "nan", "5m"],
    "metrics": ["perhaps"],
    "metrics_aliases": ["-"],
    "metrics_interval_ms": ["9", "60001", "nan", "1s"],
    "log_level": ["debug", "3"],
}
CASES = [(key, value) for key, values in BAD.items() for value in values]


def test_every_parameter_that_has_a_range_is_tried() -> None:
    assert BAD.keys() | TEXTS == {knob.name for knob in dataclasses.fields(EngineConfig)}


@pytest.mark.parametrize(("key", "value"), CASES)
def test_a_bad_value_is_named_with_its_key_and_what_is_allowed(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineConfig.from_parameters({"model_dir": "m", key: value})
    message = str(caught.value)
    assert message.startswith(f"parameter {key}: ")
    assert "allowed is " in message
    assert value.lower() in message.lower() or str(float(value)) in message or str(int(value)) in message
    assert "\n" not in message


@pytest.mark.parametrize("key", ["max_batchsize", "gpt_model_path", "", "MAX_BATCH_SIZE"])
def test_an_unknown_name_is_refused_with_those_that_are_known(key: str) -> None:
    with pytest.raises(ConfigError, match=f"parameter {key} is unknown; known are: .*max_batch_size"):
        EngineConfig.from_parameters({"model_dir": "m", key: "1"})


@pytest.mark.parametrize("key", [key for key, values in BAD.items() if key not in TEXTS])
def test_a_placeholder_that_nobody_filled_is_named_as_it_stands(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineConfig.from_parameters({"model_dir": "m", key: "${" + key + "}"})
    assert f"parameter {key}: '${{{key}}}'" in str(caught.value)


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_value_is_the_default_and_a_missing_model_is_not_one(text: str) -> None:
    assert EngineConfig.from_parameters({"model_dir": "m", "max_batch_size": text}) == EngineConfig(model_dir="m")
    with pytest.raises(ConfigError, match="parameter model_dir: '' is out of range, allowed is a directory"):
        EngineConfig.from_parameters({"model_dir": text})


def test_two_that_do_not_go_together_are_both_named() -> None:
    with pytest.raises(ConfigError, match="parameter max_num_tokens: 16 is below max_batch_size 32"):
        EngineConfig.from_parameters({"model_dir": "m", "max_num_tokens": "16"})
    with pytest.raises(ConfigError, match="parameter default_priority_level: 4 is above priority_levels 3"):
        EngineConfig.from_parameters({"model_dir": "m", "default_priority_level": "4"})


def test_good_values_arrive_with_their_types() -> None:
    given = {
        "model_dir": "m",
        "max_batch_size": " 8 ",
        "enable_overlap": "No",
        "ageing_seconds": "1.5",
        "dtype": "float16",
    }
    config = EngineConfig.from_parameters(given)
    found = config.max_batch_size, config.enable_overlap, config.ageing_seconds, config.dtype
    assert found == (8, False, 1.5, "float16")
