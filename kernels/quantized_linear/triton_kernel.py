"""Products with quantized weights in the Triton language.

Numbers are widened in registers and multiplied as they are: they are whole numbers up to 127, or 8-bit floats, which
bfloat16 and float16 hold exactly. Scales are applied to sums, of a channel or of a group, and a group's zero point
through the sum of its activations. So a weight costs one conversion and no other arithmetic.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: N803

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Schedule, cdiv, multiprocessors, power_of_2
from kernels.paged_attention.triton_kernel import precision
from kernels.quantized_linear.weights import ChannelWeight, GroupWeight

BAND = 8
"""Row tiles that run beside each other, so that they find each other's weights in the cache."""


@dataclass(frozen=True, slots=True)
class ProductShape:
    """One program's tile of the result, and how many inputs it takes at a time (channel weights)."""

    rows: int
    columns: int
    depth: int
    schedule: Schedule


def product_shape(num_rows: int, outputs: int, processors: int, grouped: bool) -> ProductShape:
    """Few rows: bandwidth decides, and tiles are narrow so that every multiprocessor has one. Many: arithmetic does."""
    rows = min(power_of_2(num_rows, 16), 128)
    if rows < 128:
        columns = 64 if cdiv(outputs, 64) >= 2 * processors else 32
        return ProductShape(rows, columns, 128, Schedule(4, 4))
    # A group's product is kept beside the sums until it is scaled: half the columns fit the registers.
    return ProductShape(rows, 64 if grouped else 128, 64, Schedule(8, 3))


def linear(x: Tensor, weight: ChannelWeight | GroupWeight, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias``; see ``reference.linear``. x: ``[T, in]``, contiguous."""
    outputs = weight.packed.shape[0] if isinstance(weight, GroupWeight) else weight.numbers.shape[0]
    out = torch.empty((x.shape[0], outputs), dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    shape = product_shape(x.shape[0], outputs, multiprocessors(x), isinstance(weight, GroupWeight))
    grid = (cdiv(x.shape[0], shape.rows) * cdiv(outputs, shape.columns),)
    common = {
        "INPUTS": x.shape[1], "ROWS": shape.rows, "COLUMNS": shape.columns, "BAND": BAND, "BIASED": bias is not None,
        "PRECISION": precision(x.dtype), **shape.schedule.options(),
    }  # fmt: skip
    added = out if bias is None else bias
    if isinstance(weight, GroupWeight):
        x = x if weight.input_order is None else x.index_select(1, weight.input_order)
        group_linear_kernel[grid](
            x, weight.packed, weight.scale, weight.shift, added, out, x.shape[0], outputs,
            GROUP_SIZE=weight.group_size, **common,
        )  # fmt: skip
    else:
        channel_linear_kernel[grid](
            x, weight.numbers, weight.scale, added, out, x.shape[0], outputs, DEPTH=shape.depth, **common
        )
    return out


@triton.jit
def tile_of_program(num_rows, outputs, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BAND: tl.constexpr):
    """The program's row and column tile: through bands of BAND row tiles, column by column."""
    program = tl.program_id(0)
    row_tiles, column_tiles = tl.cdiv(num_rows, ROWS), tl.cdiv(outputs, COLUMNS)
    band = program // (BAND * column_tiles)
    height = tl.minimum(row_tiles - band * BAND, BAND)
    inside = program % (BAND * column_tiles)
    return band * BAND + inside % height, inside // height


@triton.jit
def store_tile(out, sums, bias, rows, columns, num_rows, outputs, BIASED: tl.constexpr):
    """Add the bias and write a tile of the result."""
    if BIASED:
        sums += tl.load(bias + columns, mask=columns < outputs, other=0.0).to(tl.float32)[None, :]
    place = out + rows.to(tl.int64)[:, None] * outputs + columns[None, :]
    tl.store(place, sums.to(out.dtype.element_ty), mask=(rows < num_rows)[:, None] & (columns < outputs)[None, :])


@triton.jit(do_not_specialize=["num_rows"])
def channel_linear_kernel(
    x, numbers, scale, bias, out, num_rows, outputs,
    INPUTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, BAND: tl.constexpr,
    BIASED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of the result. Grid: ``(row tiles x column tiles,)``."""
    row_tile, column_tile = tile_of_program(num_rows, outputs, ROWS, COLUMNS, BAND)
    rows, columns = row_tile * ROWS + tl.arange(0, ROWS), column_tile * COLUMNS + tl.arange(0, COLUMNS)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    source = x + rows.to(tl.int64)[:, None] * INPUTS
    weights = numbers + columns.to(tl.int64)[None, :] * INPUTS
    for start in range(0, INPUTS, DEPTH):
        inputs = start + tl.arange(0, DEPTH)
        a = tl.load(source + inputs[None, :], mask=(rows < num_rows)[:, None] & (inputs < INPUTS)[None, :], other=0.0)
        in_weight = (inputs < INPUTS)[:, None] & (columns < outputs)[None, :]
        b = tl.load(weights + inputs[:, None], mask=in_weight, other=0.0)
        sums = tl.dot(a, b.to(a.dtype), sums, input_precision=PRECISION)
    sums *= tl.load(scale + columns, mask=columns < outputs, other=0.0)[None, :]
    store_tile(out, sums, bias, rows, columns, num_rows, outputs, BIASED)


@triton.jit(do_not_specialize=["num_rows"])
def group_linear_kernel(
    x, packed, scale, shift, bias, out, num_rows, outputs,
    INPUTS: tl.constexpr, GROUP_SIZE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BAND: tl.constexpr,
    BIASED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of the result, a group of inputs at a time. Grid: ``(row tiles x column tiles,)``."""
    HALF: tl.constexpr = GROUP_SIZE // 2  # noqa: N806
    row_tile, column_tile = tile_of_program(num_rows, outputs, ROWS, COLUMNS, BAND)
    rows, columns = row_tile * ROWS + tl.arange(0, ROWS), column_tile * COLUMNS + tl.arange(0, COLUMNS)
    half, in_rows, in_columns = tl.arange(0, HALF), (rows < num_rows)[:, None], columns < outputs
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    source = x + rows.to(tl.int64)[:, None] * INPUTS + half[None, :]
    weights = packed + columns.to(tl.int64)[None, :] * (INPUTS // 2) + half[:, None]
    for group in range(INPUTS // GROUP_SIZE):
        first = tl.load(source + group * GROUP_SIZE, mask=in_rows, other=0.0)
        second = tl.load(source + group * GROUP_SIZE + HALF, mask=in_rows, other=0.0)
        pair = tl.load(weights + group * HALF, mask=in_columns[None, :], other=0)
        product = tl.dot(first, (pair & 15).to(first.dtype), input_precision=PRECISION)
        product = tl.dot(second, (pair >> 4).to(first.dtype), product, input_precision=PRECISION)
        total = tl.sum(first.to(tl.float32), axis=1) + tl.sum(second.to(tl.float32), axis=1)
        factor = tl.load(scale + group * outputs + columns, mask=in_columns, other=0.0)
        zero = tl.load(shift + group * outputs + columns, mask=in_columns, other=0.0)
        sums += product * factor[None, :] - total[:, None] * zero[None, :]
    store_tile(out, sums, bias, rows, columns, num_rows, outputs, BIASED)
