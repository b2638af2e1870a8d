"""The linear map on the CPU, over packed weights in float32 or int8; int8 ones by x in 16 bits or in 8."""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.cpu import byte_tile
from kernels.cpu.arguments import rows_of
from kernels.cpu.emitting import LINE
from kernels.cpu.jit import Kernel, inline
from kernels.cpu.team import Team, take_task
from kernels.cpu.tile import MAX_ROWS, WIDTH, fetching_tile, panels_at_once, tile
from kernels.gated_activation.cpu import CpuGatedActivation
from kernels.gated_activation.cpu import kind_of as activation_kind
from kernels.huge_pages import KeptTensors
from kernels.linear import cpu_bytes, cpu_int8
from kernels.linear.cpu_tasks import (
    GATED_GROUP,
    GATED_GROUP_OF_ONE,
    LAYOUT,
    NOT_GATED,
    ROW_BLOCK,
    SUMS,
    Product,
    add_bias,
    block_begin,
    gate,
    panels_per_task,
    product_of,
)

_NEAR = 1 << 16  # elements of x that stay in the second-level cache while the panels of a task go over them
PRECISIONS = ("float32", "int8")
ACTIVATIONS = ("int16", "int8")  # what x is rounded to beside int8 weights


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight ``[out, in]`` cut into panels of 16 outputs, so that one input's 16 weights lie side by side.

    Of int8 weights, two inputs' 32: those of an output next to each other. Where x is rounded to bytes, four inputs'
    64, 128 added to each, and inputs filled up to whole groups.
    """

    panels: Tensor  # float32 [ceil(out / 16), in, 16], int8 [.., ceil(in / 2), 16, 2] or uint8 [.., in / 4, 16, 4]
    scale: Tensor | None  # float32 [ceil(out / 16) * 16] of an int8 weight: what each output's integers are worth
    out_features: int
    in_features: int
    kind: str  # see kind_of


def kind_of(precision: str, activations: str) -> str:
    """What a weight is packed as: ``"float32"``, ``"int8 by int16"`` or ``"int8 by int8"``.

    Raises ValueError for a precision or activations that are not known.
    """
    for name, value, known in (
        ("weight_precision", precision, PRECISIONS),
        ("activation_precision", activations, ACTIVATIONS),
    ):
        if value not in known:
            raise ValueError(f"{name} {value!r}: expected one of {', '.join(known)}")
    return precision if precision == "float32" else f"{precision} by {activations}"


def pack(weight: Tensor, precision: str, activations: str = "int16") -> PackedLinear:
    """Lay out a float32 weight ``[out, in]``, rounded to 8 bits where precision is "int8", for such activations.

    Each output has a scale of its own, its largest weight / 127; to the nearest integer, so the error is at most
    half a scale.
    """
    out_features, in_features = weight.shape
    kind = kind_of(precision, activations)
    if precision == "float32":
        return PackedLinear(_panels(weight.float()), None, out_features, in_features, kind)
    integers, scale = quantize(weight)
    filled_to, side_by_side = (2, 2) if activations == "int16" else (byte_tile.GROUP, byte_tile.QUAD)
    panels = _panels(F.pad(integers, (0, -in_features % filled_to)))
    numbers = panels.view(len(panels), -1, side_by_side, WIDTH).transpose(2, 3).contiguous()
    if activations == "int8":
        numbers = (numbers.short() + byte_tile.OFFSET).to(torch.uint8)
    return PackedLinear(numbers, F.pad(scale, (0, -out_features % WIDTH)), out_features, in_features, kind)


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
def _columns(x: int, xs: int, w: int, depth: int, out: int, os: int, rows: int, panels: int) -> None:
    """Up to six rows by a run of panels."""
    panel = 0
    while panel < panels:
        count = panels_at_once(rows, panels - panel)
        size = depth * WIDTH
        tile(rows, count, x, xs, w + panel * size * 4, WIDTH, size, depth, out + panel * WIDTH * 4, os, 0)
        panel += count


@inline
def _rows(x: int, xs: int, w: int, depth: int, out: int, os: int, rows: int) -> None:
    """One panel by more than six rows, in tiles as even as can be; meanwhile the panel behind it is brought near.

    From memory a panel takes as long as a third of the arithmetic on 32 rows: no tile could fetch all of it alone.
    """
    tiles = (rows + MAX_ROWS - 1) // MAX_ROWS
    thinned = 0
    while 2 << thinned <= tiles:
        thinned += 1
    row, ahead = 0, w + depth * WIDTH * 4
    for left in range(tiles, 0, -1):
        height = (rows - row + left - 1) // left
        at, to = x + row * xs * 4, out + row * os * 4
        fetching_tile(at, xs, w, depth, to, os, height, ahead, thinned)
        ahead += (depth >> thinned) * LINE
        row += height


@inline
def _panels_float32(p: Product, begin: int, rows: int, first: int, panels: int, out: int, stride: int) -> None:
    """A run of panels by rows from ``begin`` on."""
    x, w = p.x + begin * p.x_stride * 4, p.w + first * p.depth * WIDTH * 4
    if rows <= MAX_ROWS:
        _columns(x, p.x_stride, w, p.depth, out, stride, rows, panels)
    else:
        for panel in range(panels):
            _rows(x, p.x_stride, w + panel * p.depth * WIDTH * 4, p.depth, out + panel * WIDTH * 4, stride, rows)
    add_bias(p, first, panels, rows, out, stride)


def _linear_float32(arguments: Any, member: int, members: int) -> None:
    """A task is a group of panels and a block of rows; neighbours in order share their rows."""
    p = product_of(arguments)
    sums = p.scratch + member * p.words * 4
    groups = (p.panels + p.group - 1) // p.group
    most = max(ROW_BLOCK // 4, min(ROW_BLOCK, _NEAR // p.depth))
    blocks = (p.rows + most - 1) // most
    tasks = groups * blocks
    task = take_task(p.control, tasks, member, members)
    while task < tasks:
        block, first = task // groups, task % groups * p.group
        count = min(p.group, p.panels - first)
        begin = block_begin(p.rows, block, blocks)
        height = block_begin(p.rows, block + 1, blocks) - begin
        to = p.out + (begin * p.out_stride + first * WIDTH) * 4
        if p.activation == NOT_GATED:
            _panels_float32(p, begin, height, first, count, to, p.out_stride)
        else:
            at_once = count if height <= MAX_ROWS else 2
            for panel in range(0, count, at_once):
                some, at = min(at_once, count - panel), first + panel
                _panels_float32(p, begin, height, at, some, sums, 2 * some * WIDTH)
                beside = sums + some * WIDTH * 4
                _panels_float32(p, begin, height, p.panels + at, some, beside, 2 * some * WIDTH)
                gate(p, sums, height, some, to + panel * WIDTH * 4)
        task = take_task(p.control, tasks, member, members)


class CpuLinear:
    """``kernels.linear.reference.linear`` over packed weights, each element summed in one order whatever the batch.

    With int8 weights x is rounded: to 15 bits of each row's largest element, or to 8 of each group's (64 elements), as
    ``kernels.linear.reference.round_rows`` and ``round_groups`` say.
    """

    _kernels = MappingProxyType(
        {
            "float32": Kernel(_linear_float32),
            "int8 by int16": Kernel(cpu_int8.linear_int8),
            "int8 by int8": Kernel(cpu_bytes.linear_bytes),
        }
    )

    def __init__(self, team: Team, precision: str, activations: str = "int16") -> None:
        self._kind = kind_of(precision, activations)
        self._team, self._precision, self._activations = team, precision, activations
        self._kept = KeptTensors()
        self._scratch = torch.empty(0, dtype=torch.int32)
        self._kernel = self._kernels[self._kind]
        self._kernel.compile()

    def pack(self, weight: Tensor) -> PackedLinear:
        """``pack`` for this set of operations."""
        packed = pack(weight, self._precision, self._activations)
        return replace(packed, panels=self._kept.keep(packed.panels))

    def __call__(self, x: Tensor, weight: PackedLinear, bias: Tensor | None) -> Tensor:
        """x float32 ``[T, in]`` -> float32 ``[T, out]``."""
        panels = weight.panels.shape[0]
        out = self._team.empty("linear", x.shape[0], panels * WIDTH)
        self._multiply(x, weight, bias, out, panels_per_task(panels, self._team.num_threads), NOT_GATED)
        return out if out.shape[1] == weight.out_features else out[:, : weight.out_features]

    def gated(self, x: Tensor, weight: PackedLinear, bias: Tensor | None, activation: str) -> Tensor:
        """x float32 ``[T, in]`` -> float32 ``[T, out / 2]``: the second half of the product, gated with the first.

        The halves must be whole panels, of 16 columns each.
        """
        out = self._team.empty("gated linear", x.shape[0], weight.out_features // 2)
        most = GATED_GROUP_OF_ONE if len(x) == 1 else GATED_GROUP
        group = panels_per_task(out.shape[1] // WIDTH, self._team.num_threads, most)
        self._multiply(x, weight, bias, out, group, activation_kind(activation))
        return out

    def _multiply(
        self, x: Tensor, weight: PackedLinear, bias: Tensor | None, out: Tensor, group: int, activation: int
    ) -> None:
        address, rows, stride = rows_of(x)
        depth = weight.in_features
        if x.shape[1] != depth:
            raise ValueError(f"x has {x.shape[1]} columns, the weight {depth}")
        if weight.kind != self._kind:
            raise TypeError(f"the weight was not packed as {self._kind}")
        if bias is not None and bias.shape[0] % WIDTH:
            bias = F.pad(bias, (0, -bias.shape[0] % WIDTH))
            self._team.keep(bias)
        self._team.run(
            self._kernel, LAYOUT, self._team.control, address, stride, rows, depth, weight.panels.data_ptr(),
            out.shape[1] // WIDTH, 0 if weight.scale is None else weight.scale.data_ptr(),
            0 if bias is None else bias.data_ptr(), out.data_ptr(), out.shape[1], group, *self._reserve(depth),
            activation,
        )  # fmt: skip

    def _reserve(self, depth: int) -> tuple[int, int]:
        """Memory for each member's sums and rounded rows: its address and the words of one member."""
        words = SUMS + self._scratch_words(depth)
        if self._scratch.numel() < words * self._team.num_threads:
            self._scratch = torch.empty(words * self._team.num_threads, dtype=torch.int32)
        self._team.keep(self._scratch)
        return self._scratch.data_ptr(), words

    def _scratch_words(self, depth: int) -> int:
        if self._precision == "float32":
            return 0
        return cpu_int8.scratch_words(depth) if self._activations == "int16" else cpu_bytes.scratch_words(depth)


class CpuGatedLinear:
    """``kernels.gated_activation.reference.gated_activation`` of a product, which never leaves the threads' caches."""

    def __init__(self, linear: CpuLinear, activation: CpuGatedActivation) -> None:
        """Both of the same team."""
        self._linear, self._activation = linear, activation

    def __call__(self, x: Tensor, weight: PackedLinear, bias: Tensor | None, activation: str) -> Tensor:
        """x float32 ``[T, in]`` -> float32 ``[T, out / 2]``."""
        if weight.out_features % (2 * WIDTH):  # a panel with columns of both halves
            return self._activation(self._linear(x, weight, bias), activation)
        return self._linear.gated(x, weight, bias, activation)
