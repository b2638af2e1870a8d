import pytest
import torch

from kernels.add_rms_norm import reference as add_reference
from kernels.add_rms_norm import triton_kernel as add_triton
from kernels.gated_activation import reference as gate_reference
from kernels.gated_activation import triton_kernel as gate_triton
from kernels.kv_write import reference as write_reference
from kernels.kv_write import triton_kernel as write_triton
from kernels.rms_norm import reference as norm_reference
from kernels.rms_norm import triton_kernel as norm_triton
from kernels.rope import reference as rope_reference
from kernels.rope import triton_kernel as rope_triton
from kernels.rope_and_write import reference as fused_reference
from kernels.rope_and_write import triton_kernel as fused_triton

SIZES = [64, 80, 96, 128, 256]
assert_close = torch.testing.assert_close


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("shape", [(3, 576), (1, 80), (2, 3, 64), (0, 8)])
def test_rms_norm(shape: tuple[int, ...], offset: float) -> None:
    x, weight = torch.randn(shape) * 3, torch.randn(shape[-1])
    assert_close(norm_triton.rms_norm(x, weight, 1e-5, offset), norm_reference.rms_norm(x, weight, 1e-5, offset))


def test_rms_norm_of_a_slice_of_heads() -> None:
    x, weight = torch.randn(3, 7, 16)[:, 2:5], torch.randn(16)
    assert_close(norm_triton.rms_norm(x, weight, 1e-5, 0.0), norm_reference.rms_norm(x, weight, 1e-5, 0.0))


def test_rms_norm_of_large_narrow_numbers() -> None:
    x = torch.full((1, 4), 60000.0, dtype=torch.float16)
    assert norm_triton.rms_norm(x, torch.ones(4, dtype=torch.float16), 1e-6, 0.0).tolist() == [[1.0] * 4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_add_rms_norm(dtype: torch.dtype) -> None:
    x, residual, weight = torch.randn(3, 96).to(dtype), torch.randn(3, 96).to(dtype), torch.randn(96).to(dtype)
    found, found_sum = add_triton.add_rms_norm(x, residual, weight, 1e-5, 0.0)
    expected, expected_sum = add_reference.add_rms_norm(x, residual, weight, 1e-5, 0.0)
    assert_close(found_sum, expected_sum, rtol=0, atol=0)
    assert_close(found, expected)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("size", [7, 1536])
def test_gated_activation(size: int, activation: str) -> None:
    gate_up = torch.randn(3, 2 * size) * 3
    gate_up[0, :3] = torch.tensor([-90.0, 90.0, 0.0])
    found = gate_triton.gated_activation(gate_up, activation)
    assert_close(found, gate_reference.gated_activation(gate_up, activation), rtol=1e-5, atol=1e-5)


def test_an_unknown_activation_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="activation 'relu': expected 'silu' or 'gelu_tanh'"):
        gate_triton.gated_activation(torch.zeros(1, 2), "relu")


@pytest.mark.parametrize("size", SIZES)
def test_rope(size: int) -> None:
    x, angles = torch.randn(3, 13, size)[:, 2:11], torch.randn(3, size // 2) * 10
    assert_close(rope_triton.rope(x, angles.cos(), angles.sin()), rope_reference.rope(x, angles.cos(), angles.sin()))


@pytest.mark.parametrize("size", SIZES)
def test_kv_write(size: int) -> None:
    k, v = torch.randn(2, 9, 5, size)
    slots = torch.randperm(48)[:9] + 16
    slots[-2:] = 3  # padding rows share a slot of the null block
    found, expected = (torch.full((4, 3, 2, 5, 16, size), torch.nan, dtype=torch.bfloat16) for _ in range(2))
    write_triton.kv_write(k, v, found, 2, slots)
    write_reference.kv_write(k, v, expected, 2, slots)
    assert_close(found[1:], expected[1:], equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("pool_dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("size", "heads", "kv_heads"), [(64, 9, 3), (80, 4, 4), (128, 5, 1)])
def test_norm_rotation_and_write_in_one(
    size: int, heads: int, kv_heads: int, normed: bool, pool_dtype: torch.dtype
) -> None:  # fmt: skip
    narrow = torch.bfloat16 if pool_dtype == torch.bfloat16 else torch.float32
    qkv = torch.randn(6, (heads + 2 * kv_heads) * size + 8)[:, :-8].to(narrow)
    angles, slots = torch.randn(6, size // 2), torch.randperm(32)[:6] + 16
    norms = (torch.randn(size).to(narrow), torch.randn(size).to(narrow)) if normed else (None, None)
    results = []
    for fused in (fused_reference.rope_and_write, fused_triton.rope_and_write):
        pool = torch.zeros(3, 2, 2, kv_heads, 16, size, dtype=pool_dtype)
        scales = torch.zeros(pool.shape[:-1]) if pool_dtype == torch.int8 else None
        q = fused(qkv, angles.cos(), angles.sin(), pool, 1, slots, *norms, 1e-5, 0.0, scales)
        results.append((q, pool.float(), torch.zeros(0) if scales is None else scales))
    for expected, found in zip(*results, strict=True):
        assert_close(
            found,
            expected,
            rtol=1e-5 if narrow == torch.float32 else 1e-2,
            atol=1.01 if pool_dtype == torch.int8 else 1e-5,
        )
    assert results[0][1].any()


def test_a_norm_of_queries_alone_is_refused() -> None:
    pool = torch.zeros(2, 1, 2, 1, 16, 8)
    with pytest.raises(ValueError, match="expected both or neither"):
        fused_triton.rope_and_write(
            torch.zeros(1, 24),
            torch.ones(1, 4),
            torch.ones(1, 4),
            pool,
            0,
            torch.zeros(1).long(),
            torch.ones(8),
            None,
            0,
            0,
        )
