"""Tile shapes of the attention kernels: chosen from sizes known on the host, never from lengths on the device."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.launch import Schedule, power_of_2

PROMPT_ROWS = 8
"""From this mean number of query rows per sequence on, a batch is prompt-heavy."""

_SMALLEST_DOT = 16
_PROMPT_TILE = 64
_SMALL_SHARED = 200 * 1024  # Hopper and later have more
_TINY_SHARED = 64 * 1024  # AMD's; what does not fit there is held in registers


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """One program's tile: ``rows`` packed query rows (queries x heads of a group) against ``tile`` keys at a time."""

    rows: int
    tile: int
    schedule: Schedule

    def queries(self, group: int) -> int:
        """Query positions that fit in the rows, each with all heads of its group."""
        return self.rows // group


def decode_shape(group: int, head_dim: int, block_size: int, item_bytes: int, shared: int) -> AttentionShape:
    """For one query row per sequence. Bandwidth decides, so tiles are small and many are in flight.

    Args:
        group: query heads per key head.
        head_dim: elements of one head.
        block_size: tokens of a pool block.
        item_bytes: bytes of one pool element.
        shared: bytes of shared memory that one program may take.
    """
    size = power_of_2(head_dim)
    tile = min(max(block_size, 32), 64 if size <= 128 else 16)
    rows = power_of_2(group, _SMALLEST_DOT)
    return _fitting(AttentionShape(rows, tile, Schedule(4, 3)), size, item_bytes, shared)


def prompt_shape(group: int, head_dim: int, item_bytes: int, shared: int) -> AttentionShape:
    """For prompt chunks. Arithmetic decides, so each key tile meets as many query rows as the registers hold."""
    size = power_of_2(head_dim)
    wide = size <= 128
    # Widening 8 bits takes registers as well.
    many = wide and (item_bytes > 1 or shared > _SMALL_SHARED)
    rows = power_of_2(group, 128 if many else 64)
    # Where scores stay in a warp's registers beside queries and sums (no wgmma), 64 keys are more than they hold.
    tile = _PROMPT_TILE if wide and shared > _SMALL_SHARED else 32
    if item_bytes == 1 and shared <= _TINY_SHARED:
        tile = _SMALLEST_DOT
    return _fitting(AttentionShape(rows, tile, Schedule(8, 3)), size, item_bytes, shared)


def ragged_shape(
    num_rows: int, num_sequences: int, group: int, head_dim: int, block_size: int, item_bytes: int, shared: int
) -> AttentionShape:
    """For a mixed batch, by its mean number of rows per sequence."""
    heavy = num_rows >= PROMPT_ROWS * max(num_sequences, 1)
    if heavy:
        return prompt_shape(group, head_dim, item_bytes, shared)
    return decode_shape(group, head_dim, block_size, item_bytes, shared)


def shared_need(shape: AttentionShape, size: int, item_bytes: int) -> int:
    """About the shared memory a program takes: the query tile and the keys and values of each stage."""
    return shape.rows * size * 2 + 2 * shape.schedule.stages * shape.tile * size * item_bytes


def _fitting(shape: AttentionShape, size: int, item_bytes: int, shared: int) -> AttentionShape:
    """The shape with fewer stages, then fewer keys, then fewer rows, until its tiles fit."""
    while shared_need(shape, size, item_bytes) > shared:
        if shape.schedule.stages > 2:
            shape = AttentionShape(shape.rows, shape.tile, Schedule(shape.schedule.warps, shape.schedule.stages - 1))
        elif shape.tile > _SMALLEST_DOT:
            shape = AttentionShape(shape.rows, shape.tile // 2, shape.schedule)
        else:
            shape = AttentionShape(shape.rows // 2, shape.tile, shape.schedule)
    return shape
