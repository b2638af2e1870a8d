import pytest
import torch

from backend.config import EngineConfig
from backend.cpu_precision import CpuNumbers, cpu_numbers
from backend.errors import ConfigError
from kernels.cpu import byte_tile, half


def numbers(head_dim: int = 64, **knobs: object) -> CpuNumbers:
    """What a model with such heads has by these knobs."""
    return cpu_numbers(EngineConfig(model_dir="m", **knobs), head_dim)  # type: ignore[arg-type]


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that multiplies bytes and converts float16."""
    monkeypatch.setattr(byte_tile, "supported", lambda: True)
    monkeypatch.setattr(half, "supported", lambda: True)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that converts float16, but does not multiply bytes."""
    monkeypatch.setattr(byte_tile, "supported", lambda: False)
    monkeypatch.setattr(half, "supported", lambda: True)


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({}, ("int8", "int8", torch.int16, True)),
        ({"weight_precision": "int8"}, ("int8", "int8", torch.int16, True)),
        ({"weight_precision": "float32"}, ("float32", "int16", torch.float32, False)),
        ({"activation_precision": "int16"}, ("int8", "int16", torch.float16, False)),
        ({"kv_cache_precision": "float16"}, ("int8", "int16", torch.float16, False)),
        ({"kv_cache_precision": "float32", "batch_invariant": True}, ("int8", "int8", torch.float32, True)),
        ({"kv_cache_precision": "float32", "activation_precision": "int8"}, ("int8", "int8", torch.float32, True)),
        ({"weight_precision": "float32", "kv_cache_precision": "int16"}, ("float32", "int16", torch.int16, False)),
        ({"tokens_per_block": 8}, ("int8", "int16", torch.float16, False)),
        ({"head_dim": 80}, ("int8", "int16", torch.float16, False)),
    ],
)
def test_where_bytes_are_multiplied_fast(
    fast: None, knobs: dict[str, object], expected: tuple[str, str, torch.dtype, bool]
) -> None:
    assert numbers(**knobs) == expected


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({}, ("int8", "int16", torch.float16, False)),
        ({"weight_precision": "float32"}, ("float32", "int16", torch.float32, False)),
        ({"kv_cache_precision": "float32"}, ("int8", "int16", torch.float32, False)),
        ({"weight_precision": "float32", "kv_cache_precision": "float16"}, ("float32", "int16", torch.float16, False)),
        ({"batch_invariant": True}, ("int8", "int16", torch.float16, True)),
        ({"activation_precision": "int8"}, ("int8", "int8", torch.float16, True)),
        ({"kv_cache_precision": "int16"}, ("int8", "int16", torch.int16, False)),
    ],
)
def test_where_they_are_not(
    plain: None, knobs: dict[str, object], expected: tuple[str, str, torch.dtype, bool]
) -> None:
    assert numbers(**knobs) == expected


def test_a_processor_without_float16_keeps_float32_and_refuses_what_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_tile, "supported", lambda: False)
    monkeypatch.setattr(half, "supported", lambda: False)
    assert numbers().pool == torch.float32
    with pytest.raises(ConfigError, match="parameter kv_cache_precision: 'float16' needs a processor that converts"):
        numbers(kv_cache_precision="float16")


def test_what_a_model_or_other_knobs_rule_out_is_refused_by_name(fast: None) -> None:
    needs = (
        "parameter kv_cache_precision: 'int16' needs heads of a multiple of 64 dimensions, not 80, and tokens_per_block"
    )
    with pytest.raises(ConfigError, match=f"{needs} a multiple of 16, not 8"):
        numbers(80, kv_cache_precision="int16", tokens_per_block=8)
    with pytest.raises(ConfigError, match="parameter activation_precision: 'int8' needs weight_precision=int8"):
        numbers(weight_precision="float32", activation_precision="int8")
