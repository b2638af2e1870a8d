import pytest
import torch

from kernels.kv_write.reference import kv_write as plain_write
from kernels.paged_attention.reference import paged_attention as plain_attention
from kernels.quantized_kv import reference, triton_kernel

FORMATS = [torch.int8, torch.float8_e4m3fn]


def written(dtype: torch.dtype, writer: object = reference.kv_write) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    shape = (6, 2, 2, 3, 16, 24)
    pool = torch.full(shape, 7, dtype=torch.uint8).view(dtype)
    scales = torch.full(shape[:-1], torch.nan)
    slots = torch.randperm(60)[:40] + 16
    k, v = torch.randn(2, 40, 3, 24)
    k[3] *= 1000
    v[5, 1] = 0
    writer(k, v, pool, scales, 1, slots)  # type: ignore[operator]
    return k, v, slots, pool, scales


@pytest.mark.parametrize("dtype", FORMATS)
def test_written_numbers_and_scales_are_the_references(dtype: torch.dtype) -> None:
    *_, expected, expected_scales = written(dtype)
    *_, found, found_scales = written(dtype, triton_kernel.kv_write)
    torch.testing.assert_close(found_scales, expected_scales, rtol=1e-6, atol=0, equal_nan=True)
    # Scales that differ in the last bit may round a number that lies in the middle the other way.
    assert (found.view(torch.uint8) != expected.view(torch.uint8)).float().mean() < 1e-3


@pytest.mark.parametrize(("dtype", "error"), [(torch.int8, 0.6 / 127), (torch.float8_e4m3fn, 1 / 16)])
def test_a_quantized_number_is_within_half_a_step(dtype: torch.dtype, error: float) -> None:
    x = torch.randn(50, 64)
    numbers, scale = reference.quantize(x, dtype)
    assert ((numbers.float() * scale[:, None] - x).abs() <= error * x.abs().amax(1, keepdim=True)).all()
    assert (numbers.float().abs().amax(1) == reference.LARGEST[dtype]).all()


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("dtype", FORMATS)
def test_attention_over_scales_and_numbers_is_attention_over_their_products(dtype: torch.dtype, rows: int) -> None:
    k, v, slots, pool, scales = written(dtype)
    del k, v, slots
    pool = torch.randint(-100, 100, pool.shape, dtype=torch.int8) if dtype == torch.int8 else pool
    if dtype != torch.int8:
        pool = (torch.randn(pool.shape) * 100).to(dtype)
    scales = torch.rand(scales.shape) * 0.02
    scales[5] = torch.nan  # no sequence's
    q = torch.randn(rows * 2, 6, 24)
    arguments = (
        1,
        torch.tensor([[3, 1, 0], [2, 4, 0]], dtype=torch.int32),
        torch.tensor([0, rows, 2 * rows], dtype=torch.int32),
        torch.tensor([30, 17], dtype=torch.int32),
        0.1,
        None,
        None,
    )
    scales[4, :, :, :, 1:] = torch.nan  # beyond the second sequence's last key
    expected = reference.paged_attention(q, pool, scales, *arguments)
    assert expected.isfinite().all()
    torch.testing.assert_close(
        triton_kernel.paged_attention(q, pool, scales, *arguments), expected, rtol=1e-4, atol=1e-4
    )
    if rows == 1:
        found = triton_kernel.decode_attention(q, pool, scales, *arguments)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", FORMATS)
def test_eight_bits_stay_close_to_the_unquantized_result(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    k, v = torch.randn(2, 48, 2, 64)
    slots = torch.arange(16, 64)
    wide = torch.zeros(4, 1, 2, 2, 16, 64)
    plain_write(k, v, wide, 0, slots)
    pool, scales = torch.zeros(wide.shape, dtype=torch.uint8).view(dtype), torch.zeros(wide.shape[:-1])
    triton_kernel.kv_write(k, v, pool, scales, 0, slots)
    q = torch.randn(2, 8, 64)
    batch = (torch.tensor([[1, 2, 3]], dtype=torch.int32), torch.tensor([0, 2]).int(), torch.tensor([48]).int())
    found = triton_kernel.paged_attention(q, pool, scales, 0, *batch, 0.125, None, None)
    expected = plain_attention(q, wide, 0, *batch, 0.125, None, None)
    assert (found - expected).norm() / expected.norm() < (0.02 if dtype == torch.int8 else 0.06)


def test_an_unknown_format_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="torch.int16: expected torch.int8 or torch.float8_e4m3fn"):
        reference.quantize(torch.zeros(1), torch.int16)
