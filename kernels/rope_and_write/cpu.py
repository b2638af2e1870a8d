"""Query and key norm, rotation and pool write on the CPU: one pass, keys are rotated on their way into the pool."""

from typing import Any

import numpy as np
import torch
from numba import carray
from torch import Tensor

from kernels.cpu.arguments import FLOAT16, FLOAT32, indices_of, number_kind, rows_of
from kernels.cpu.half import narrow
from kernels.cpu.int16_slots import put_key, put_value
from kernels.cpu.jit import Kernel, inline
from kernels.cpu.memory import copy, double_of_bits, floats, longs
from kernels.cpu.team import Team, take_task
from kernels.int16_kv.reference import largest
from kernels.rms_norm.cpu import norm_row

_LAYOUT = "21q2d"
_ROWS = 16  # of a task at most
_ALONE = 1 << 13  # elements of qkv that one thread handles sooner than two would meet


@inline
def _rotate(source: Any, cos: Any, sin: Any, target: Any) -> None:
    half = cos.shape[0]
    for i in range(half):
        left, right = source[i], source[i + half]
        target[i] = left * cos[i] - right * sin[i]
        target[i + half] = right * cos[i] + left * sin[i]


@inline
def _prepare(source: Any, norm: int, eps: float, offset: Any, cos: Any, sin: Any, target: Any) -> None:
    """One head: normalised where there is a norm, then rotated."""
    if norm != 0:
        norm_row(source, floats(norm, source.shape[0]), eps, offset, target)
        _rotate(target, cos, sin, target)
    else:
        _rotate(source, cos, sin, target)


def _rope_and_write(arguments: Any, member: int, members: int) -> None:
    """A task is a run of rows: neighbours of a sequence go to the same lines of the cache."""
    a = carray(arguments, (23,))
    qkv, stride, rows, cos, sin, slots, heads, kv_heads, size = a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]
    keys, block_stride, value_offset, block_size, out, query_norm, key_norm = (
        a[9], a[10], a[11], a[12], a[13], a[14], a[15],
    )  # fmt: skip
    number_kind, scratch, head_stride, most = a[17], a[18] + member * size * 8, a[19], a[20]
    eps, offset, half = double_of_bits(a[21]), np.float32(double_of_bits(a[22])), size // 2
    itemsize = 4 if number_kind == FLOAT32 else 2
    step = max(1, min(_ROWS, rows // (2 * members)))
    tasks = (rows + step - 1) // step
    task = take_task(a[16], tasks, member, members)
    while task < tasks:
        for row in range(task * step, min(rows, (task + 1) * step)):
            turn_cos, turn_sin = floats(cos + row * half * 4, half), floats(sin + row * half * 4, half)
            source = qkv + row * stride * 4
            for h in range(heads):
                target = floats(out + (row * heads + h) * size * 4, size)
                _prepare(floats(source + h * size * 4, size), query_norm, eps, offset, turn_cos, turn_sin, target)
            slot = longs(slots + row * 8, 1)[0]
            block, slot = keys + slot // block_size * block_stride * itemsize, slot % block_size
            for h in range(kv_heads):
                head, at = block + h * head_stride * itemsize, source + (heads + h) * size * 4
                to = head + slot * size * itemsize
                rotated = to if number_kind == FLOAT32 else scratch  # and rounded from there
                _prepare(floats(at, size), key_norm, eps, offset, turn_cos, turn_sin, floats(rotated, size))
                value, further = at + kv_heads * size * 4, value_offset * itemsize
                if number_kind == FLOAT32:
                    copy(value, size, to + further)
                elif number_kind == FLOAT16:
                    narrow(rotated, size, to)
                    narrow(value, size, to + further)
                else:
                    put_key(rotated, size, most, head, block_size, slot, scratch + size * 4)
                    put_value(value, size, most, head + further, block_size, slot, scratch + size * 4)
        task = take_task(a[16], tasks, member, members)


class CpuRopeAndWrite:
    """``kernels.rope_and_write.reference.rope_and_write``, float32; the pool float32, float16 or int16."""

    kernel = Kernel(_rope_and_write)

    def __init__(self, team: Team) -> None:
        self._team = team

    def __call__(
        self,
        qkv: Tensor,
        cos: Tensor,
        sin: Tensor,
        pool: Tensor,
        layer: int,
        slot_mapping: Tensor,
        query_norm: Tensor | None,
        key_norm: Tensor | None,
        eps: float,
        offset: float,
        scales: Tensor | None = None,
    ) -> Tensor:
        """``[T, Hq, D]``, the queries."""
        if scales is not None:
            raise TypeError("a pool in 8 bits is not supported on the CPU")
        address, rows, stride = rows_of(qkv)
        _, _, _, kv_heads, block_size, size = pool.shape
        heads = qkv.shape[1] // size - 2 * kv_heads
        block_stride, _, part_stride, head_stride = pool.stride()[:4]
        out = self._team.empty("rope_and_write", rows, heads, size)
        scratch = self._team.empty("rope_and_write key", self._team.num_threads, 2 * size)
        self._team.run(
            self.kernel, _LAYOUT, address, stride, rows, rows_of(cos)[0], rows_of(sin)[0],
            indices_of(slot_mapping, torch.int64), heads, kv_heads, size,
            pool[:, layer].data_ptr(), block_stride, part_stride, block_size, out.data_ptr(),
            0 if query_norm is None else query_norm.data_ptr(), 0 if key_norm is None else key_norm.data_ptr(),
            self._team.control, number_kind(pool), scratch.data_ptr(), head_stride, largest(size), eps, offset,
            alone=rows * qkv.shape[1] < _ALONE,
        )  # fmt: skip
        return out
