import dataclasses
import inspect
import math

import pytest
import torch

from kernels.kv_write.reference import kv_write
from kernels.operations import Operations
from kernels.rms_norm.reference import rms_norm
from kernels.rope.reference import rope
from kernels.rope_and_write.reference import rope_and_write


@pytest.mark.parametrize("size", [64, 80, 128, 256])
def test_rope_turns_each_half_split_pair_by_its_angle(size: int) -> None:
    torch.manual_seed(0)
    x, angles = torch.randn(5, 3, size), torch.randn(5, size // 2) * 10
    found = rope(x, angles.cos(), angles.sin())
    for row in range(5):
        for head in range(3):
            for pair in range(size // 2):
                left, right = float(x[row, head, pair]), float(x[row, head, pair + size // 2])
                turned = complex(left, right) * complex(math.cos(angles[row, pair]), math.sin(angles[row, pair]))
                assert math.isclose(found[row, head, pair], turned.real, abs_tol=1e-5)
                assert math.isclose(found[row, head, pair + size // 2], turned.imag, abs_tol=1e-5)


def test_rotated_products_depend_on_the_distance_only() -> None:
    torch.manual_seed(0)
    q, k, frequencies = torch.randn(1, 1, 64), torch.randn(1, 1, 64), torch.rand(32)

    def at(x: torch.Tensor, position: int) -> torch.Tensor:
        angles = (frequencies * position)[None]
        return rope(x, angles.cos(), angles.sin())

    near, far = (at(q, 7) * at(k, 3)).sum(), (at(q, 107) * at(k, 103)).sum()
    torch.testing.assert_close(near, far, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("block_size", [1, 16, 32])
def test_keys_and_values_land_in_their_slots_and_nowhere_else(block_size: int) -> None:
    torch.manual_seed(0)
    pool = torch.full((4, 3, 2, 2, block_size, 8), torch.nan)
    slots = torch.randperm(3 * block_size)[: min(7, 3 * block_size)] + block_size
    k, v = torch.randn(2, len(slots), 2, 8)
    kv_write(k, v, pool, 2, slots)
    for row, slot in enumerate(slots.tolist()):
        block, offset = divmod(slot, block_size)
        assert torch.equal(pool[block, 2, 0, :, offset], k[row])
        assert torch.equal(pool[block, 2, 1, :, offset], v[row])
        pool[block, 2, :, :, offset] = torch.nan
    assert pool.isnan().all()


def test_padding_rows_may_share_a_slot_of_the_null_block() -> None:
    pool = torch.zeros(2, 1, 2, 1, 4, 2, dtype=torch.bfloat16)
    kv_write(torch.ones(3, 1, 2), torch.ones(3, 1, 2), pool, 0, torch.tensor([0, 0, 5]))
    assert pool[1, 0, 0, 0, 1].tolist() == [1.0, 1.0]
    assert pool[1].sum() == 4


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("shape", [(5, 80), (3, 4, 64), (70, 300)])
def test_rms_norm(operations: Operations, shape: tuple[int, ...], offset: float) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(shape) * 3, torch.randn(shape[-1])
    wide = x.double()
    mean_square = sum(wide[..., i] ** 2 for i in range(shape[-1])) / shape[-1]
    expected = wide / (mean_square + 0.01).sqrt()[..., None] * (weight.double() + offset)
    torch.testing.assert_close(operations.rms_norm(x, weight, 0.01, offset).double(), expected, rtol=1e-5, atol=1e-5)


def test_the_norm_of_a_sum_and_the_sum(operations: Operations) -> None:
    torch.manual_seed(0)
    x, residual, weight = torch.randn(5, 160)[:, :80], torch.randn(5, 80), torch.randn(80)
    normed, total = operations.add_rms_norm(x, residual, weight, 0.01, 1.0)
    torch.testing.assert_close(total, x + residual)
    torch.testing.assert_close(normed, rms_norm(x + residual, weight, 0.01, 1.0))


@pytest.mark.parametrize("with_norms", [False, True])
@pytest.mark.parametrize(("size", "heads", "kv_heads"), [(64, 9, 3), (80, 4, 4), (256, 4, 1), (8, 7, 1)])
@pytest.mark.parametrize("rows", [1, 33])
def test_queries_and_keys_are_rotated_and_keys_and_values_stored(
    operations: Operations, rows: int, size: int, heads: int, kv_heads: int, with_norms: bool
) -> None:
    torch.manual_seed(0)
    qkv, angles = torch.randn(rows, (heads + 2 * kv_heads) * size), torch.randn(rows, size // 2) * 10
    norms = (torch.randn(size), torch.randn(size)) if with_norms else (None, None)
    slots = torch.randperm(5 * 16)[:rows] + 16
    pools = [torch.full((6, 3, 2, kv_heads, 16, size), torch.nan) for _ in range(2)]
    arguments = [(qkv.clone(), angles.cos(), angles.sin(), pool, 1, slots, *norms, 1e-5, 0.0) for pool in pools]
    found, expected = operations.rope_and_write(*arguments[0]), rope_and_write(*arguments[1])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(pools[0], pools[1], rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("with_norms", [False, True])
@pytest.mark.parametrize(("size", "kv_heads"), [(64, 3), (80, 2), (8, 1)])
def test_keys_and_values_are_rounded_into_a_pool_in_float16(
    compiled: Operations, size: int, kv_heads: int, with_norms: bool
) -> None:
    torch.manual_seed(0)
    rows = 33
    qkv, angles = torch.randn(rows, (4 + 2 * kv_heads) * size), torch.randn(rows, size // 2) * 10
    norms = (torch.randn(size), torch.randn(size)) if with_norms else (None, None)
    slots = torch.randperm(5 * 16)[:rows] + 16
    wide, narrow = (torch.zeros(6, 3, 2, kv_heads, 16, size, dtype=kind) for kind in (torch.float32, torch.float16))
    rest = (1, slots, *norms, 1e-5, 0.0)
    expected = compiled.rope_and_write(qkv, angles.cos(), angles.sin(), wide, *rest)
    assert torch.equal(compiled.rope_and_write(qkv, angles.cos(), angles.sin(), narrow, *rest), expected)
    assert torch.equal(narrow, wide.half())


def test_a_value_beyond_float16_is_stored_as_its_largest_and_a_nan_as_a_nan(compiled: Operations) -> None:
    values = torch.zeros(16)
    values[:7] = torch.tensor([7e4, -1e30, torch.inf, -torch.inf, torch.nan, 65504.0, 6e-8])
    qkv, pool = torch.cat((torch.zeros(32), values))[None], torch.zeros(2, 1, 2, 1, 16, 16, dtype=torch.float16)
    compiled.rope_and_write(
        qkv, torch.ones(1, 8), torch.zeros(1, 8), pool, 0, torch.tensor([19]), None, None, 1e-5, 0.0
    )
    stored = pool[1, 0, 1, 0, 3].float().tolist()
    assert stored[:4] == [65504.0, -65504.0, 65504.0, -65504.0]
    assert math.isnan(stored[4])
    assert stored[5:8] == [65504.0, 2**-24, 0.0]


def test_rms_norm_of_narrow_numbers_does_not_overflow_in_the_square() -> None:
    x = torch.full((1, 4), 60000.0, dtype=torch.float16)
    assert rms_norm(x, torch.ones(4, dtype=torch.float16), 1e-6, 0.0).tolist() == [[1.0] * 4]


def _silu(x: float) -> float:
    return x / (1 + math.exp(-x)) if x > -500 else 0.0


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(("name", "function"), [("silu", _silu), ("gelu_tanh", _gelu_tanh)])
def test_the_first_half_gates_the_second(operations: Operations, name: str, function: object) -> None:
    torch.manual_seed(0)
    gate_up = torch.randn(4, 14) * 3
    gate_up[0, :7] = torch.tensor([-300.0, -90.0, -20.0, 0.0, 20.0, 90.0, 300.0])
    expected = [[function(float(row[i])) * float(row[i + 7]) for i in range(7)] for row in gate_up]  # type: ignore[operator]
    torch.testing.assert_close(operations.gated_activation(gate_up, name), torch.tensor(expected), rtol=1e-5, atol=1e-5)


def test_a_gate_that_is_not_a_number_stays_one(operations: Operations) -> None:
    gate_up = torch.full((1, 4), torch.nan)
    gate_up[0, 1:] = 1.0
    assert operations.gated_activation(gate_up, "silu").isnan().tolist() == [[True, False]]


def test_large_batches_are_gated_like_small_ones(operations: Operations) -> None:
    torch.manual_seed(0)
    gate_up = torch.randn(300, 126) * 3
    whole = operations.gated_activation(gate_up, "silu")
    torch.testing.assert_close(whole[150:151], operations.gated_activation(gate_up[150:151], "silu"))


def test_an_unknown_activation_is_refused_by_name(operations: Operations) -> None:
    with pytest.raises(ValueError, match="activation 'relu': expected 'silu' or 'gelu_tanh'"):
        operations.gated_activation(torch.zeros(1, 2), "relu")


@pytest.mark.parametrize("with_bias", [False, True])
def test_linear(operations: Operations, with_bias: bool) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(3, 5), torch.randn(4, 5), torch.randn(4) if with_bias else None
    expected = torch.zeros(3, 4, dtype=torch.float64)
    for row in range(3):
        for out in range(4):
            products = [float(x[row, i]) * float(weight[out, i]) for i in range(5)]
            expected[row, out] = math.fsum([*products, float(bias[out]) if bias is not None else 0.0])
    torch.testing.assert_close(
        operations.linear(x, operations.pack_linear(weight), bias).double(), expected, rtol=1e-5, atol=1e-5
    )


def test_the_table_holds_each_operation_with_the_parameters_its_protocol_names(operations: Operations) -> None:
    for field in dataclasses.fields(operations):
        if field.name in ("workspace", "recorder"):
            continue  # no operation
        found = inspect.signature(getattr(operations, field.name)).parameters
        promised = inspect.signature(field.type.__call__).parameters  # type: ignore[union-attr]
        assert [*found] == [name for name in promised if name != "self"], field.name
