import pytest
import torch

from backend.cpu_precision import pool_dtype, weight_precision
from backend.errors import ConfigError
from kernels.cpu import half


def test_matrices_are_in_8_bits_unless_asked_otherwise() -> None:
    assert [weight_precision(asked) for asked in ("auto", "int8", "float32")] == ["int8", "int8", "float32"]


@pytest.mark.parametrize(
    ("asked", "weights", "expected"),
    [
        ("auto", "int8", torch.float16),
        ("auto", "float32", torch.float32),
        ("float32", "int8", torch.float32),
        ("float16", "float32", torch.float16),
    ],
)
def test_the_pool_is_narrow_beside_narrow_matrices_or_where_asked(
    asked: str, weights: str, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half, "supported", lambda: True)
    assert pool_dtype(asked, weights) == expected


def test_a_processor_without_float16_keeps_float32_and_refuses_what_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "supported", lambda: False)
    assert pool_dtype("auto", "int8") == torch.float32
    with pytest.raises(ConfigError, match="parameter kv_cache_precision: 'float16' needs a processor that converts"):
        pool_dtype("float16", "int8")
