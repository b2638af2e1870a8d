"""RMSNorm on the CPU, alone or with the residual sum before it in the same pass."""

from typing import Any

import numpy as np
from numba import carray
from torch import Tensor

from kernels.cpu.arguments import heads_of, rows_of
from kernels.cpu.jit import Kernel, inline, reordering
from kernels.cpu.memory import double_of_bits, floats
from kernels.cpu.team import Team, take_task

_LAYOUT = "12q2d"
_STEP = 1 << 12  # elements of one task
_ALONE = 1 << 14  # elements that one thread norms sooner than two would meet


@reordering
def _sum_of_squares(x: Any) -> Any:
    total = np.float32(0)
    for i in range(x.shape[0]):
        total += x[i] * x[i]
    return total


@inline
def _scale(x: Any, weight: Any, factor: Any, offset: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[i] = x[i] * factor * (offset + weight[i])


@inline
def norm_row(x: Any, weight: Any, eps: float, offset: Any, out: Any) -> None:
    """RMSNorm of one row."""
    mean = np.float64(_sum_of_squares(x)) / x.shape[0]
    _scale(x, weight, np.float32(1.0 / np.sqrt(mean + eps)), offset, out)


@inline
def _add(x: Any, y: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[i] = x[i] + y[i]


def _rms_norm(arguments: Any, member: int, members: int) -> None:
    """A task is a few rows; row ``i`` is head ``i % heads`` of token ``i // heads``."""
    a = carray(arguments, (14,))
    control, x, row_stride, head_stride, residual, residual_stride, total = a[0], a[1], a[2], a[3], a[4], a[5], a[6]
    weight, out, rows, heads, size = floats(a[7], a[11]), a[8], a[9], a[10], a[11]
    eps, offset = double_of_bits(a[12]), np.float32(double_of_bits(a[13]))
    step = max(1, _STEP // size)
    tasks = (rows + step - 1) // step
    task = take_task(control, tasks, member, members)
    while task < tasks:
        for row in range(task * step, min(rows, (task + 1) * step)):
            source = floats(x + (row // heads * row_stride + row % heads * head_stride) * 4, size)
            if residual != 0:
                summed = floats(total + row * size * 4, size)
                _add(source, floats(residual + row * residual_stride * 4, size), summed)
                source = summed
            norm_row(source, weight, eps, offset, floats(out + row * size * 4, size))
        task = take_task(control, tasks, member, members)


class CpuRmsNorm:
    """``kernels.rms_norm.reference.rms_norm`` of ``[T, D]`` or ``[T, H, D]``, float32."""

    kernel = Kernel(_rms_norm)

    def __init__(self, team: Team) -> None:
        self._team = team

    def __call__(self, x: Tensor, weight: Tensor, eps: float, offset: float) -> Tensor:
        """The same shape, contiguous."""
        address, row_stride, head_stride = heads_of(x) if x.dim() == 3 else (*rows_of(x)[::2], 0)
        return self._run((address, row_stride, head_stride, 0, 0, 0), x, weight, eps, offset)

    def add(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float) -> tuple[Tensor, Tensor]:
        """``kernels.add_rms_norm.reference.add_rms_norm``."""
        (address, rows, stride), (added, _, added_stride) = rows_of(x), rows_of(residual)
        total = self._team.empty("sum", rows, x.shape[1])
        source = (address, stride, 0, added, added_stride, total.data_ptr())
        return self._run(source, x, weight, eps, offset), total

    def _run(self, source: tuple[int, ...], x: Tensor, weight: Tensor, eps: float, offset: float) -> Tensor:
        out = self._team.empty("norm", *x.shape)
        size = x.shape[-1]
        heads = x.shape[1] if x.dim() == 3 else 1
        self._team.run(
            self.kernel, _LAYOUT, self._team.control, *source, weight.data_ptr(), out.data_ptr(), x.shape[0] * heads,
            heads, size, eps, offset, alone=x.numel() < _ALONE,
        )  # fmt: skip
        return out
