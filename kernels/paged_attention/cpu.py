"""Attention of a ragged, mixed batch on the CPU, over the pool in place."""

from typing import Any

import torch
from torch import Tensor

from kernels.cpu.arguments import INT16, heads_of, indices_of, number_kind
from kernels.cpu.jit import Kernel, inline
from kernels.cpu.memory import longs
from kernels.cpu.team import Team, take_task
from kernels.paged_attention.cpu_chunk import attend_chunk
from kernels.paged_attention.cpu_int16_chunk import attend_chunk_int16, chunk_scratch
from kernels.paged_attention.cpu_int16_single import attend_single_int16, combine_int16, single_scratch
from kernels.paged_attention.cpu_plan import plan
from kernels.paged_attention.cpu_problem import (
    KEYS,
    LAYOUT,
    PART,
    TASK_WORDS,
    TILE_ROWS,
    TILE_ROWS_INT16,
    Problem,
    Task,
    problem_of,
    task_at,
)
from kernels.paged_attention.cpu_single import attend_single, combine_floats


def _attend(arguments: Any, member: int, members: int) -> None:
    """Take tasks until there are no more; the next before a short one, whose end asks for the next one's memory."""
    p = problem_of(arguments)
    count = longs(p.counts, 2)[0]
    scratch = p.scratch + member * p.scratch_size * 4
    owner = members - 1 - member  # rows go down with the tasks
    index = take_task(p.control, count, owner, members)
    while index < count:
        task = task_at(p, index)
        if task.rows == 1 and p.invariant == 0:
            index = take_task(p.control, count, owner, members)
            attend_single(p, task, task_at(p, min(index, count - 1)), scratch)
        else:
            attend_chunk(p, task, scratch)
            index = take_task(p.control, count, owner, members)


def _attend_int16(arguments: Any, member: int, members: int) -> None:
    """As ``_attend``; one way and the other give the same bits."""
    p = problem_of(arguments)
    count = longs(p.counts, 2)[0]
    scratch = p.scratch + member * p.scratch_size * 4
    owner = members - 1 - member  # rows go down with the tasks
    index = take_task(p.control, count, owner, members)
    while index < count:
        task = task_at(p, index)
        if task.rows == 1:
            index = take_task(p.control, count, owner, members)
            attend_single_int16(p, task, task_at(p, min(index, count - 1)), scratch)
        else:
            attend_chunk_int16(p, task, scratch)
            index = take_task(p.control, count, owner, members)


@inline
def _same(p: Problem, task: Task, index: int) -> bool:
    """Whether another task of the list is a part of the same head of the same row."""
    other = task_at(p, index)
    return other.row == task.row and other.head == task.head


def _combine(arguments: Any, _member: int, _members: int) -> None:
    """Add up the partial results; for one member alone, as there is little to do."""
    p = problem_of(arguments)
    group, index = p.heads // p.kv_heads, 0
    counts = longs(p.counts, 2)
    count = counts[0] if counts[1] > 0 else 0
    while index < count:
        task, parts = task_at(p, index), 1
        if task.partial >= 0:
            while index + parts < count and _same(p, task, index + parts):
                parts += 1
            for g in range(group):
                if p.kind == INT16:
                    combine_int16(p, task, parts, g, group)
                else:
                    combine_floats(p, task, parts, g, group)
        index += parts


class CpuPagedAttention:
    """``kernels.paged_attention.reference.paged_attention`` over a pool of float32, float16 or int16.

    Work is linear in the keys that rows see. In floats, decode rows are summed in an order that their length alone
    decides, chunk rows in another; with ``invariant`` every row in the chunks' order, whatever its chunk and batch, bit
    for bit. Over int16 (``kernels.cpu.int16_slots``) queries and weights are whole numbers, too, and both ways give the
    same bits without.
    """

    _plan, _combine = Kernel(plan), Kernel(_combine)
    _floats, _int16 = Kernel(_attend), Kernel(_attend_int16)

    def __init__(self, team: Team, invariant: bool = False) -> None:
        self._team, self._invariant = team, invariant
        self._counts = torch.zeros(2, dtype=torch.int64)
        self._tasks = torch.empty(0, dtype=torch.int64)
        self._partials, self._scratch = torch.empty(0), torch.empty(0)

    def compile(self, pool: torch.dtype) -> None:
        """Make the machine code for such a pool, or take it from the cache."""
        for kernel in (self._plan, self._int16 if pool == torch.int16 else self._floats, self._combine):
            kernel.compile()

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
        kind = number_kind(pool)
        self.compile(pool.dtype)
        scratch_size = self._reserve(q.shape, pool, block_tables.shape)
        self._team.keep(self._counts, self._tasks, self._partials, self._scratch)
        sequences, width = block_tables.shape[0], block_tables.stride(0)
        self._team.run(
            self._plan, LAYOUT, self._team.control, q_address, q_row, q_head,
            pool[:, layer].data_ptr(), pool.itemsize, block_stride, part_stride, head_stride, pool.shape[4],
            indices_of(block_tables, torch.int32), width,
            indices_of(query_start, torch.int32), indices_of(kv_lengths, torch.int32), sequences, q.shape[0],
            q.shape[1], pool.shape[3], q.shape[2], window or 0, out.data_ptr(), self._tasks.data_ptr(),
            self._counts.data_ptr(), self._partials.data_ptr(), self._scratch.data_ptr(), scratch_size,
            int(self._invariant), kind, scale, softcap or 0.0, alone=True,
        )  # fmt: skip
        self._team.again(self._int16 if kind == INT16 else self._floats)
        if self._team.recorded or self._counts[1]:
            self._team.again(self._combine, alone=True)
        return out

    def _reserve(self, q: torch.Size, pool: Tensor, tables: torch.Size) -> int:
        """Make the buffers large enough for any batch of these shapes; the floats of one member's scratch."""
        (rows, heads, size), kv_heads, block_size = q, pool.shape[3], pool.shape[4]
        group, stride = heads // kv_heads, -(-size // 16) * 16
        parts = kv_heads * tables[0] * (2 + tables[1] * block_size // PART)
        whole = pool.dtype == torch.int16
        tile_queries = max(1, (TILE_ROWS_INT16 if whole else TILE_ROWS) // group)
        self._tasks = _at_least(self._tasks, TASK_WORDS * (parts + kv_heads * (rows // tile_queries + tables[0])))
        self._partials = _at_least(self._partials, parts * group * (stride + 2))
        tile_rows = tile_queries * group
        if whole:
            scratch_size = -(-max(chunk_scratch(tile_rows, size), single_scratch(group, size)) // 64) * 16
        else:
            scratch_size = tile_rows * (size + KEYS + stride + 2) + KEYS * (size + stride) + block_size * size + 16
        self._scratch = _at_least(self._scratch, self._team.num_threads * scratch_size)
        return scratch_size


def _at_least(buffer: Tensor, count: int) -> Tensor:
    """The buffer, or where it is too small a new one with room to spare."""
    return buffer if buffer.numel() >= count else torch.empty(2 * count, dtype=buffer.dtype)
