"""Gated activations on the CPU."""

from typing import Any

import numpy as np
from numba import carray
from torch import Tensor

from kernels.cpu.arguments import rows_of
from kernels.cpu.exponential import exponential, hyperbolic_tangent
from kernels.cpu.jit import Kernel, inline
from kernels.cpu.memory import floats
from kernels.cpu.team import Team, take_task
from kernels.cpu.tile import WIDTH
from kernels.gated_activation.cpu_vectors import CUBIC, ROOT, gelu_tanh_vectors, silu_vectors

_LAYOUT = "7q"
_STEP = 2048  # outputs of one task
_ALONE = 1 << 12  # outputs that one thread computes sooner than two would meet
_ACTIVATIONS = {"silu": 0, "gelu_tanh": 1}
_ONE, _HALF = np.float32(1), np.float32(0.5)
_ROOT, _CUBIC = np.float32(ROOT), np.float32(CUBIC)


@inline
def _silu(gate: Any, up: Any, out: Any) -> None:
    for i in range(gate.shape[0]):
        out[i] = gate[i] / (_ONE + exponential(-gate[i])) * up[i]


@inline
def _gelu_tanh(gate: Any, up: Any, out: Any) -> None:
    for i in range(gate.shape[0]):
        x = gate[i]
        out[i] = _HALF * x * (_ONE + hyperbolic_tangent(_ROOT * (x + _CUBIC * x * x * x))) * up[i]


@inline
def activate(kind: int, gate: int, up: int, count: int, out: int) -> None:
    """Gate ``count`` float32 numbers at one address with those at another. kind: see ``kind_of``."""
    vectors = count // WIDTH
    if kind == 0:
        silu_vectors(gate, up, vectors, out)
    else:
        gelu_tanh_vectors(gate, up, vectors, out)
    done, rest = vectors * WIDTH * 4, count % WIDTH
    if rest and kind == 0:
        _silu(floats(gate + done, rest), floats(up + done, rest), floats(out + done, rest))
    elif rest:
        _gelu_tanh(floats(gate + done, rest), floats(up + done, rest), floats(out + done, rest))


def kind_of(activation: str) -> int:
    """Its number for compiled code; ValueError where there is no such activation."""
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation {activation!r}: expected 'silu' or 'gelu_tanh'")
    return _ACTIVATIONS[activation]


def _gated_activation(arguments: Any, member: int, members: int) -> None:
    """A task is a stretch of one row."""
    a = carray(arguments, (7,))
    control, source, stride, rows, size, out, kind = a[0], a[1], a[2], a[3], a[4], a[5], a[6]
    stretches = (size + _STEP - 1) // _STEP
    tasks = rows * stretches
    task = take_task(control, tasks, member, members)
    while task < tasks:
        row, column = task // stretches, task % stretches * _STEP
        count = min(size - column, _STEP)
        gate, to = source + (row * stride + column) * 4, out + (row * size + column) * 4
        activate(kind, gate, gate + size * 4, count, to)
        task = take_task(control, tasks, member, members)


class CpuGatedActivation:
    """``kernels.gated_activation.reference.gated_activation``, float32."""

    kernel = Kernel(_gated_activation)

    def __init__(self, team: Team) -> None:
        self._team = team

    def __call__(self, gate_up: Tensor, activation: str) -> Tensor:
        """``[T, 2 * I]`` -> ``[T, I]``."""
        kind = kind_of(activation)
        address, rows, stride = rows_of(gate_up)
        size = gate_up.shape[1] // 2
        out = self._team.empty("gated_activation", rows, size)
        self._team.run(
            self.kernel, _LAYOUT, self._team.control, address, stride, rows, size, out.data_ptr(), kind,
            alone=rows * size < _ALONE,
        )  # fmt: skip
        return out
