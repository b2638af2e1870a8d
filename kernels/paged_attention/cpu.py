"""Attention of a ragged, mixed batch on the CPU, over the pool in place."""

from typing import Any

import torch
from torch import Tensor

from kernels.cpu.arguments import heads_of, indices_of
from kernels.cpu.jit import Kernel
from kernels.cpu.memory import longs
from kernels.cpu.team import Team, take_task
from kernels.paged_attention.cpu_chunk import attend_chunk
from kernels.paged_attention.cpu_plan import plan
from kernels.paged_attention.cpu_problem import KEYS, LAYOUT, PART, TASK_WORDS, TILE_ROWS, problem_of, task_at
from kernels.paged_attention.cpu_single import attend_single, combine


def _attend(arguments: Any, member: int, _members: int) -> None:
    """Take tasks until there are no more."""
    p = problem_of(arguments)
    count = longs(p.counts, 2)[0]
    scratch = p.scratch + member * p.scratch_size * 4
    index = take_task(p.control)
    while index < count:
        task = task_at(p, index)
        if task.rows == 1 and p.invariant == 0:
            attend_single(p, task, scratch)
        else:
            attend_chunk(p, task, scratch)
        index = take_task(p.control)


class CpuPagedAttention:
    """``kernels.paged_attention.reference.paged_attention``, float32 over a pool of float32 or float16.

    Work is linear in the keys that rows see. Decode rows are summed in an order that their length alone decides, chunk
    rows in another; with ``invariant`` every row in the chunks' order, whatever its chunk and batch, bit for bit.
    """

    kernels = (Kernel(plan), Kernel(_attend), Kernel(combine))

    def __init__(self, team: Team, invariant: bool = False) -> None:
        self._team, self._invariant = team, invariant
        self._counts = torch.zeros(2, dtype=torch.int64)
        self._tasks = torch.empty(0, dtype=torch.int64)
        self._partials, self._scratch = torch.empty(0), torch.empty(0)

    def __call__(
        self,
        q: Tensor,
        pool: Tensor,
        layer: int,
        block_tables: Tensor,
        query_start: Tensor,
        kv_lengths: Tensor,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """q ``[T, Hq, D]`` -> ``[T, Hq, D]``."""
        q_address, q_row, q_head = heads_of(q)
        out = self._team.empty("paged_attention", *q.shape)
        block_stride, _, part_stride, head_stride = pool.stride()[:4]
        scratch_size = self._reserve(q.shape, pool.shape, block_tables.shape)
        self._team.keep(self._counts, self._tasks, self._partials, self._scratch)
        sequences, width = block_tables.shape[0], block_tables.stride(0)
        plan, attend, combine = self.kernels
        self._team.run(
            plan, LAYOUT, self._team.control, q_address, q_row, q_head,
            pool[:, layer].data_ptr(), pool.itemsize, block_stride, part_stride, head_stride, pool.shape[4],
            indices_of(block_tables, torch.int32), width,
            indices_of(query_start, torch.int32), indices_of(kv_lengths, torch.int32), sequences, q.shape[0],
            q.shape[1], pool.shape[3], q.shape[2], window or 0, out.data_ptr(), self._tasks.data_ptr(),
            self._counts.data_ptr(), self._partials.data_ptr(), self._scratch.data_ptr(), scratch_size,
            int(self._invariant), scale, softcap or 0.0, alone=True,
        )  # fmt: skip
        self._team.again(attend)
        if self._team.recorded or self._counts[1]:
            self._team.again(combine, alone=True)
        return out

    def _reserve(self, q: torch.Size, pool: torch.Size, tables: torch.Size) -> int:
        """Make the buffers large enough for any batch of these shapes; the floats of one member's scratch."""
        (rows, heads, size), kv_heads = q, pool[3]
        group, stride = heads // kv_heads, -(-size // 16) * 16
        parts = kv_heads * tables[0] * (1 + tables[1] * pool[4] // PART)
        tile_queries = max(1, TILE_ROWS // group)
        self._tasks = _at_least(self._tasks, TASK_WORDS * (parts + kv_heads * (rows // tile_queries + tables[0])))
        self._partials = _at_least(self._partials, parts * group * (stride + 2))
        tile_rows = tile_queries * group
        scratch_size = tile_rows * (size + KEYS + stride + 2) + KEYS * (size + stride) + pool[4] * size + 16
        self._scratch = _at_least(self._scratch, self._team.num_threads * scratch_size)
        return scratch_size


def _at_least(buffer: Tensor, count: int) -> Tensor:
    """The buffer, or where it is too small a new one with room to spare."""
    return buffer if buffer.numel() >= count else torch.empty(2 * count, dtype=buffer.dtype)
