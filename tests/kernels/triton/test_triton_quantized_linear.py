import pytest
import torch

from kernels.quantized_linear import reference, triton_kernel
from kernels.quantized_linear.weights import (
    AWQ_ORDER,
    from_awq,
    from_gptq,
    quantize_channels,
    quantize_groups,
)


def packed_words(numbers: torch.Tensor, order: tuple[int, ...] = tuple(range(8))) -> torch.Tensor:
    """uint8 [..., n * 8] -> int32 [..., n]: number i of each eight in nibble order[i]."""
    shifts = torch.tensor(order) * 4
    words = (numbers.long().unflatten(-1, (-1, 8)) << shifts).sum(dim=-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


@pytest.mark.parametrize("rows", [1, 17, 130])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_channel_weights(dtype: torch.dtype, biased: bool, rows: int) -> None:
    torch.manual_seed(0)
    x, bias = torch.randn(rows, 200), torch.randn(72) if biased else None
    weight = quantize_channels(torch.randn(72, 200), dtype)
    found, expected = triton_kernel.linear(x, weight, bias), reference.linear(x, weight, bias)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 40, 130])
@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_group_weights(group_size: int, rows: int) -> None:
    torch.manual_seed(0)
    x, bias = torch.randn(rows, 256), torch.randn(40)
    weight = quantize_groups(torch.randn(40, 256), group_size)
    found, expected = triton_kernel.linear(x, weight, bias), reference.linear(x, weight, bias)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_narrow_activations() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 128).bfloat16()
    for weight in (quantize_groups(torch.randn(64, 128), 64), quantize_channels(torch.randn(64, 128), torch.int8)):
        found = triton_kernel.linear(x, weight, None)
        torch.testing.assert_close(found, reference.linear(x, weight, None), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("bits", "error"), [(4, 0.12), (8, 0.01)])
def test_a_quantized_weight_stays_close(bits: int, error: float) -> None:
    weight = torch.randn(64, 256)
    made = quantize_groups(weight, 64) if bits == 4 else quantize_channels(weight, torch.int8)
    assert (reference.dequantize(made) - weight).norm() / weight.norm() < error


@pytest.mark.parametrize("act_order", [False, True])
def test_a_gptq_checkpoint_means_number_less_zero_times_scale(act_order: bool) -> None:
    torch.manual_seed(0)
    numbers = torch.randint(0, 16, (96, 24))  # [in, out]
    zeros, scales = torch.randint(1, 17, (3, 24)), torch.rand(3, 24)
    group = torch.randperm(96) // 32 if act_order else torch.arange(96) // 32
    expected = ((numbers - zeros[group]) * scales[group]).T
    qweight = packed_words(numbers.T).T.contiguous()
    weight = from_gptq(qweight, packed_words(zeros - 1), scales, group.int())
    torch.testing.assert_close(reference.dequantize(weight), expected)
    x = torch.randn(3, 96)
    torch.testing.assert_close(triton_kernel.linear(x, weight, None), x @ expected.T, rtol=1e-4, atol=1e-4)
    assert (weight.input_order is not None) == act_order


def test_gptq_groups_of_different_sizes_are_refused() -> None:
    group = torch.tensor([0] * 20 + [1] * 12)
    with pytest.raises(ValueError, match="g_idx: expected the same number of inputs in every group"):
        from_gptq(torch.zeros(4, 8).int(), torch.zeros(2, 1).int(), torch.ones(2, 8), group)


def test_an_awq_checkpoint_means_number_less_zero_times_scale() -> None:
    torch.manual_seed(0)
    numbers, zeros, scales = torch.randint(0, 16, (64, 16)), torch.randint(0, 16, (2, 16)), torch.rand(2, 16)
    # AutoAWQ packs outputs 0, 2, 4, 6, 1, 3, 5, 7 into nibbles 0 .. 7.
    nibble_of_output = tuple([0, 2, 4, 6, 1, 3, 5, 7].index(i) for i in range(8))
    assert nibble_of_output == AWQ_ORDER
    weight = from_awq(packed_words(numbers, nibble_of_output), packed_words(zeros, nibble_of_output), scales)
    group = torch.arange(64) // 32
    torch.testing.assert_close(reference.dequantize(weight), ((numbers - zeros[group]) * scales[group]).T)
