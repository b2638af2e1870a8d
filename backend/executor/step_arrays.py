"""StepPlan -> the arrays that a step of the GPU executor sends to the device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.executor.sequence_rows import SequenceRows
from backend.scheduler.plan import Chunk

UNKNOWN = -1
"""Stands for a token that the step before is still to bring; the device has it."""


class StepArrays(NamedTuple):
    """A step of ``T`` tokens of ``S`` sequences, ``R`` of which sample. See ``backend.model.batch.StepInputs``."""

    known: NDArray[np.int64]  # [T], token ids or UNKNOWN
    positions: NDArray[np.int64]  # [T]
    slots: NDArray[np.int64]  # [T]
    query_start: NDArray[np.int32]  # [S + 1]
    kv_lengths: NDArray[np.int32]  # [S]
    rows: NDArray[np.int64]  # [S], of the sequences in the device's tables
    logit_rows: NDArray[np.int64]  # [R]
    sampled_rows: NDArray[np.int64]  # [R], rows of the sequences that sample
    temperature: NDArray[np.float32]  # [R], these six as in kernels.sampling
    top_k: NDArray[np.int32]
    top_p: NDArray[np.float32]
    min_p: NDArray[np.float32]
    seed: NDArray[np.int64]
    draw_positions: NDArray[np.int32]  # [R]

    @property
    def filtered(self) -> bool:
        """Whether any row's tokens are cut by top_k, top_p or min_p before the draw."""
        return bool(self.top_k.any() or (self.top_p < 1.0).any() or self.min_p.any())


def bytes_per_step(num_tokens: int, num_sequences: int) -> list[int]:
    """Bytes of each array of a step in which every sequence samples."""
    per_token, per_sequence = 3 * [8 * num_tokens], [8, 8, 8, 4, 4, 4, 4, 8, 4]
    lengths = [4 * (num_sequences + 1), 4 * num_sequences]
    return per_token + lengths + [size * num_sequences for size in per_sequence]


def step_arrays(works: list[Chunk], rows: NDArray[np.int64], table: SequenceRows, block_size: int) -> StepArrays:
    """Lay out the work of a plan, sequence after sequence. rows: what ``table.place`` gave."""
    lengths = np.array([work.num_tokens for work in works], dtype=np.int64)
    starts = np.array([work.start for work in works], dtype=np.int64)
    samples = np.array([work.samples for work in works], dtype=np.bool_)
    return _laid_out(_known_tokens(works), lengths, starts, samples, rows, table, block_size)


def null_arrays(lengths: list[int], table: SequenceRows, block_size: int) -> StepArrays:
    """Sequences of these numbers of tokens, from position 0 on, in the null block; all sample."""
    rows = np.full(len(lengths), table.null_row, dtype=np.int64)
    counts = np.array(lengths, dtype=np.int64)
    known = np.zeros(sum(lengths), dtype=np.int64)
    return _laid_out(known, counts, counts * 0, counts > 0, rows, table, block_size)


def padded_decode(arrays: StepArrays, size: int, null_row: int) -> StepArrays:
    """A decode step of ``size`` sequences: those there are, then rows without keys that write to the null block."""
    more = size - len(arrays.rows)
    if not more:
        return arrays
    fill = dict.fromkeys(StepArrays._fields, 0) | {"rows": null_row, "sampled_rows": null_row, "top_p": 1}
    padded = {
        name: np.concatenate((array, np.full(more, fill[name], dtype=array.dtype)))
        for name, array in arrays._asdict().items()
    }
    padded["query_start"] = np.arange(size + 1, dtype=np.int32)
    padded["logit_rows"] = np.arange(size, dtype=np.int64)
    return StepArrays(**padded)


def _laid_out(
    known: NDArray[np.int64],
    lengths: NDArray[np.int64],
    starts: NDArray[np.int64],
    samples: NDArray[np.bool_],
    rows: NDArray[np.int64],
    table: SequenceRows,
    block_size: int,
) -> StepArrays:
    query_start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    positions = np.arange(query_start[-1]) - query_start[sequence] + starts[sequence]
    blocks = table.tables[rows[sequence], positions // block_size].astype(np.int64)
    ends, sampled = starts + lengths, rows[samples]
    return StepArrays(
        known=known,
        positions=positions,
        slots=blocks * block_size + positions % block_size,
        query_start=query_start.astype(np.int32),
        kv_lengths=ends.astype(np.int32),
        rows=rows,
        logit_rows=query_start[1:][samples] - 1,
        sampled_rows=sampled,
        temperature=table.temperature[sampled],
        top_k=table.top_k[sampled],
        top_p=table.top_p[sampled],
        min_p=table.min_p[sampled],
        seed=table.seed[sampled],
        draw_positions=ends[samples].astype(np.int32),
    )


def _known_tokens(works: list[Chunk]) -> NDArray[np.int64]:
    tokens: list[int] = []
    for work in works:
        end = work.start + work.num_tokens
        known = work.sequence.tokens[work.start : end]
        tokens.extend(known)
        tokens.extend([UNKNOWN] * (work.num_tokens - len(known)))
    return np.array(tokens, dtype=np.int64)
