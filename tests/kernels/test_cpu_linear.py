from functools import partial

import pytest
import torch
from torch.nn.functional import gelu

from kernels.cpu.byte_tile import GROUP
from kernels.linear import cpu
from kernels.linear.cpu_int8 import LARGEST
from kernels.linear.reference import linear, round_groups, round_rows
from kernels.operations import Operations
from kernels.table import cpu_operations

KINDS = ["float32", "int8", "int8 by int8"]
ROWS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 31, 97, 200]


def dequantized(weight: torch.Tensor) -> torch.Tensor:
    integers, scale = cpu.quantize(weight)
    return integers * scale[:, None]


def as_taken(x: torch.Tensor, kind: str) -> torch.Tensor:
    if kind == "float32":
        return x
    numbers, scale = round_rows(x, LARGEST) if kind == "int8" else round_groups(x, GROUP, 127)
    return (numbers * scale).float()


def packed(weight: torch.Tensor, kind: str) -> cpu.PackedLinear:
    return cpu.pack(weight, "int8", "int8") if kind == "int8 by int8" else cpu.pack(weight, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("out", "depth"), [(960, 576), (16, 1), (101, 48), (1, 300), (80, 1537)])
def test_every_number_of_rows_gives_the_product_with_the_weights_used(
    of_precision: dict[str, Operations], kind: str, out: int, depth: int
) -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(out, depth) * 0.1, torch.randn(out)
    used = weight if kind == "float32" else dequantized(weight)
    laid_out = packed(weight, kind)
    for rows in ROWS:
        x = torch.randn(rows, depth + 3)[:, :depth]
        for added in (bias, None):
            want = linear(as_taken(x, kind), used, added)
            torch.testing.assert_close(of_precision[kind].linear(x, laid_out, added), want, rtol=1e-4, atol=1e-4)


def test_int8_weights_take_x_in_15_bits_of_each_rows_largest(of_precision: dict[str, Operations]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(48, 1000)
    x = torch.randn(30, 1000) * torch.logspace(-30, 30, 30)[:, None]
    found = of_precision["int8"].linear(x, cpu.pack(weight, "int8"), None).double()
    exact = x.double() @ dequantized(weight).double().T
    half_a_step = x.double().abs().amax(dim=1, keepdim=True) / LARGEST / 2
    bound = half_a_step * dequantized(weight).double().abs().sum(dim=1)
    assert ((found - exact).abs() <= bound * 1.001).all()
    assert ((found - exact).abs() > bound * 1e-3).any()  # and it does round


def test_with_activations_in_bytes_each_group_of_64_has_a_step_of_its_own(of_precision: dict[str, Operations]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(48, 1000)
    x = torch.randn(30, 1000) * torch.logspace(-30, 30, 30)[:, None]
    x[:, 100] *= 1e4  # an outlier, whose 63 neighbours alone come to nothing
    found = of_precision["int8 by int8"].linear(x, packed(weight, "int8 by int8"), None).double()
    exact = x.double() @ dequantized(weight).double().T
    tops = torch.cat([part.abs().amax(dim=1, keepdim=True).expand_as(part) for part in x.double().split(64, 1)], dim=1)
    bound = tops / 127 / 2 @ dequantized(weight).double().abs().T + exact.abs() * 1e-5
    assert ((found - exact).abs() <= bound).all()
    assert ((found - exact).abs() > bound * 1e-3).any()  # and it does round
    few = round_groups(x, 64, 127)[0][:, 64:128].count_nonzero(dim=1)
    assert (few == 1).all()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_sums_of_the_largest_whole_numbers_do_not_overflow(of_precision: dict[str, Operations], kind: str) -> None:
    for depth in (575, 576, 577, 1536, 4000):
        for sign in (1.0, -1.0):
            weight = packed(torch.full((33, depth), 127.0), kind)
            found = of_precision[kind].linear(torch.full((7, depth), sign), weight, None)
            torch.testing.assert_close(found, torch.full((7, 33), sign * 127 * depth))


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("depth", [50, 200])
def test_a_row_that_is_not_finite_gives_nan_and_one_of_zeros_zero(
    of_precision: dict[str, Operations], kind: str, depth: int
) -> None:
    torch.manual_seed(0)
    weight = packed(torch.randn(32, depth), kind)
    x = torch.randn(5, depth)
    alone = of_precision[kind].linear(x[4:], weight, None)
    x[0, 7], x[1, 9], x[2, 0], x[3] = torch.nan, torch.inf, -torch.inf, 0.0
    found = of_precision[kind].linear(x, weight, None)
    assert found[:3].isnan().all()
    assert (found[3] == 0).all()
    assert torch.equal(found[4:], alone)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rows_result_is_the_same_bit_for_bit_whatever_rows_stand_beside_it(
    of_precision: dict[str, Operations], kind: str
) -> None:
    torch.manual_seed(0)
    weight = packed(torch.randn(192, 300), kind)
    x = torch.randn(131, 300)
    whole = of_precision[kind].linear(x, weight, None)
    for rows in ROWS:
        for first in (0, 5, 131 - min(rows, 131)):
            found = of_precision[kind].linear(x[first : first + rows], weight, None)
            assert torch.equal(found, whole[first : first + rows][: len(found)])


def test_one_thread_and_three_give_the_same_bits(compiled: Operations) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(192, 300), torch.randn(50, 300)
    results = [
        operations.linear(x, operations.pack_linear(weight), None)
        for operations in (compiled, cpu_operations(1), cpu_operations(3))
    ]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_8_bit_weights_are_off_by_half_a_step_of_their_outputs_scale_at_most() -> None:
    torch.manual_seed(0)
    weight = torch.randn(20, 64) * torch.logspace(-6, 3, 20)[:, None]
    weight[3] = 0.0
    integers, scale = cpu.quantize(weight)
    assert integers.abs().amax(dim=1).tolist() == [127 if row != 3 else 0 for row in range(20)]
    assert ((dequantized(weight) - weight).abs() <= scale[:, None] * 0.5001).all()


def test_a_no_row_batch_gives_no_rows(compiled: Operations) -> None:
    assert compiled.linear(torch.zeros(0, 48), compiled.pack_linear(torch.randn(101, 48)), None).shape == (0, 101)


def test_operands_that_compiled_code_cannot_take_are_refused(compiled: Operations) -> None:
    call = partial(compiled.linear, weight=compiled.pack_linear(torch.randn(32, 48)), bias=None)
    for wrong in (torch.zeros(2, 48, dtype=torch.float64), torch.zeros(48, 2).T):
        with pytest.raises(TypeError, match="expected float32 with contiguous rows"):
            call(wrong)
    with pytest.raises(ValueError, match="x has 47 columns, the weight 48"):
        call(torch.zeros(2, 47))
    with pytest.raises(TypeError, match="the weight was not packed as float32"):
        compiled.linear(torch.zeros(2, 48), cpu.pack(torch.randn(32, 48), "int8"), None)
    with pytest.raises(ValueError, match="weight_precision 'int4': expected one of float32, int8"):
        cpu_operations(1, "int4")
    with pytest.raises(ValueError, match="activation_precision 'int4': expected one of int16, int8"):
        cpu_operations(1, "int8", activation_precision="int4")


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("inner", "depth"), [(1536, 576), (16, 1), (48, 300), (40, 65)])  # 40: no whole panels
def test_a_gated_product_is_the_activation_of_the_product(
    of_precision: dict[str, Operations], kind: str, inner: int, depth: int, activation: str
) -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(2 * inner, depth) * 0.1, torch.randn(2 * inner)
    used = weight if kind == "float32" else dequantized(weight)
    laid_out, operations = packed(weight, kind), of_precision[kind]
    function = torch.nn.functional.silu if activation == "silu" else partial(gelu, approximate="tanh")
    for rows in ROWS:
        x = torch.randn(rows, depth + 3)[:, :depth]
        for added in (bias, None):
            found = operations.gated_linear(x, laid_out, added, activation)
            gate, up = linear(as_taken(x, kind), used, added).chunk(2, dim=1)
            torch.testing.assert_close(found, function(gate) * up, rtol=2e-4, atol=2e-4)
            in_two = operations.gated_activation(operations.linear(x, laid_out, added), activation)
            assert torch.equal(found, in_two)


def test_a_gated_product_of_no_rows_has_none_and_an_activation_must_be_known(compiled: Operations) -> None:
    weight = compiled.pack_linear(torch.randn(64, 48))
    assert compiled.gated_linear(torch.zeros(0, 48), weight, None, "silu").shape == (0, 32)
    with pytest.raises(ValueError, match="activation 'relu'"):
        compiled.gated_linear(torch.zeros(1, 48), weight, None, "relu")
