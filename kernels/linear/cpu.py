"""The linear map on the CPU, over packed weights in float32 or int8."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from numba import carray
from torch import Tensor

from kernels.cpu.arguments import rows_of
from kernels.cpu.jit import Kernel, inline
from kernels.cpu.memory import floats
from kernels.cpu.team import Team, take_task
from kernels.cpu.tile import MAX_ROWS, WIDTH, narrow_tile, panels_at_once, tile

PRECISIONS = ("float32", "int8")
_ROW_BLOCK = 96  # rows of x that stay in the second-level cache while a group of panels goes over them
_MAX_GROUP = 12  # panels of one task
_LAYOUT = "12q"


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight ``[out, in]`` cut into panels of 16 outputs, so that one input's 16 weights lie side by side."""

    panels: Tensor  # [ceil(out / 16), in, 16], float32 or int8; outputs past the last are 0
    scale: Tensor | None  # float32 [ceil(out / 16) * 16] of an int8 weight: what each output's integers are worth
    out_features: int


def pack(weight: Tensor, precision: str) -> PackedLinear:
    """Lay out a float32 weight ``[out, in]``, rounded to 8 bits where precision is "int8".

    Each output has a scale of its own, its largest weight / 127; to the nearest integer, so the error is at most
    half a scale.
    """
    if precision == "float32":
        return PackedLinear(_panels(weight.float()), None, weight.shape[0])
    integers, scale = quantize(weight)
    padding = -weight.shape[0] % WIDTH
    return PackedLinear(_panels(integers), F.pad(scale, (0, padding)), weight.shape[0])


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """``[out, in]`` -> int8 of that shape and float32 ``[out]``; ``integers * scale[:, None]`` is the weight used."""
    wide = weight.float()
    scale = wide.abs().amax(dim=1) / 127
    integers = torch.round(wide / scale.clamp_min(torch.finfo(torch.float32).tiny)[:, None])
    return integers.to(torch.int8), scale


def _panels(weight: Tensor) -> Tensor:
    padded = F.pad(weight, (0, 0, 0, -weight.shape[0] % WIDTH))
    return padded.view(-1, WIDTH, weight.shape[1]).transpose(1, 2).contiguous()


@inline
def _columns(x: int, xs: int, w: int, depth: int, out: int, os: int, rows: int, panels: int, scale: int) -> None:
    """Up to six rows by a run of panels; ``scale`` is 0 for float32 panels."""
    panel = 0
    while panel < panels:
        count = panels_at_once(rows, panels - panel)
        to, size = out + panel * WIDTH * 4, depth * WIDTH
        if scale == 0:
            tile(rows, count, x, xs, w + panel * size * 4, WIDTH, size, depth, to, os, 0)
        else:
            of_columns = scale + panel * WIDTH * 4
            narrow_tile(rows, count, x, xs, w + panel * size, WIDTH, size, depth, to, os, of_columns)
        panel += count


@inline
def _add_bias(out: int, stride: int, rows: int, bias: int, columns: int) -> None:
    added = floats(bias, columns)
    for row in range(rows):
        sums = floats(out + row * stride * 4, columns)
        for column in range(columns):
            sums[column] += added[column]


def _linear(arguments: Any, _member: int, _members: int) -> None:
    """A task is a group of panels and a block of rows; neighbours in order share their rows."""
    a = carray(arguments, (12,))
    control, x, xs, rows, depth, w, panels, scale, bias, out, os, group = (
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
    )  # fmt: skip
    groups = (panels + group - 1) // group
    tasks = groups * ((rows + _ROW_BLOCK - 1) // _ROW_BLOCK)
    task = take_task(control)
    while task < tasks:
        block, first = task // groups, task % groups * group
        count = min(group, panels - first)
        weights = w + first * depth * WIDTH * (4 if scale == 0 else 1)
        scales = 0 if scale == 0 else scale + first * WIDTH * 4
        row, end = block * _ROW_BLOCK, min(rows, (block + 1) * _ROW_BLOCK)
        while row < end:
            height = min(MAX_ROWS, end - row)
            to = out + (row * os + first * WIDTH) * 4
            _columns(x + row * xs * 4, xs, weights, depth, to, os, height, count, scales)
            if bias != 0:
                _add_bias(to, os, height, bias + first * WIDTH * 4, count * WIDTH)
            row += height
        task = take_task(control)


class CpuLinear:
    """``kernels.linear.reference.linear`` over packed weights, each element summed in one order whatever the batch."""

    kernel = Kernel(_linear)

    def __init__(self, team: Team, precision: str) -> None:
        if precision not in PRECISIONS:
            raise ValueError(f"weight_precision {precision!r}: expected one of {', '.join(PRECISIONS)}")
        self._team, self._precision = team, precision

    def pack(self, weight: Tensor) -> PackedLinear:
        """``pack`` in the precision of this set of operations."""
        return pack(weight, self._precision)

    def __call__(self, x: Tensor, weight: PackedLinear, bias: Tensor | None) -> Tensor:
        """x float32 ``[T, in]`` -> float32 ``[T, out]``."""
        address, rows, stride = rows_of(x)
        panels, depth, _ = weight.panels.shape
        if x.shape[1] != depth:
            raise ValueError(f"x has {x.shape[1]} columns, the weight {depth}")
        out = self._team.empty("linear", rows, panels * WIDTH)
        if bias is not None and bias.shape[0] % WIDTH:
            bias = F.pad(bias, (0, -bias.shape[0] % WIDTH))
            self._team.keep(bias)
        self._team.run(
            self.kernel, _LAYOUT, self._team.control, address, stride, rows, depth, weight.panels.data_ptr(), panels,
            0 if weight.scale is None else weight.scale.data_ptr(), 0 if bias is None else bias.data_ptr(),
            out.data_ptr(), panels * WIDTH, self._group(panels),
        )  # fmt: skip
        return out if out.shape[1] == weight.out_features else out[:, : weight.out_features]

    def _group(self, panels: int) -> int:
        """Panels per task: enough tasks that no member waits long for another."""
        return min(_MAX_GROUP, max(1, panels // (4 * self._team.num_threads)))
