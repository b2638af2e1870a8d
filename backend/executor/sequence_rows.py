"""Rows: the lasting places of running sequences in the device's tables, and what the host knows to be in them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.request import Sequence
from backend.scheduler.plan import Chunk

_MOST_TOP_K = 2**31 - 1


class TableEdits(NamedTuple):
    """Block ids that are new in the tables. places: int64 ``[E]``, into the flattened tables. blocks: int32 ``[E]``."""

    places: NDArray[np.int64]
    blocks: NDArray[np.int32]


class SequenceRows:
    """Gives each planned sequence a row and keeps it until another needs it: least recently planned goes first.

    A row holds a sequence's block table and how it samples. Only what has changed since is written again. The last
    row is nobody's: its table is all null block, and padding points at it.

    tables: int32 ``[num_rows + 1, width]``, the host's copy of what the device has. temperature, top_p, min_p: float32
    ``[num_rows + 1]``; top_k: int32; seed: int64, the bits of the seed. See ``kernels.sampling``.
    """

    def __init__(self, num_rows: int, max_blocks: int) -> None:
        """max_blocks: of one sequence."""
        # A stride that is a multiple of 16 whatever the limits: kernels are compiled for what the stride divides by.
        width = -(-max_blocks // 16) * 16
        self.null_row = num_rows
        self.tables = np.zeros((num_rows + 1, width), dtype=np.int32)
        self.temperature = np.zeros(num_rows + 1, dtype=np.float32)
        self.top_k = np.zeros(num_rows + 1, dtype=np.int32)
        self.top_p = np.ones(num_rows + 1, dtype=np.float32)
        self.min_p = np.zeros(num_rows + 1, dtype=np.float32)
        self.seed = np.zeros(num_rows + 1, dtype=np.int64)
        self._row_of: dict[int, int] = {}  # by request id, least recently planned first
        self._free = list(range(num_rows - 1, -1, -1))
        self._epoch = [0] * num_rows
        self._known = [0] * num_rows

    def place(self, works: list[Chunk]) -> tuple[NDArray[np.int64], TableEdits]:
        """The row of each sequence, int64 ``[S]``, and the edits that bring the device's tables up to date.

        At most ``num_rows`` sequences. The edits are counted as made.
        """
        rows = [self._kept_row(work.sequence) for work in works]
        for n, work in enumerate(works):
            if rows[n] < 0:
                rows[n] = self._new_row(work.sequence)
        return np.array(rows, dtype=np.int64), self._edits(works, rows)

    def _kept_row(self, sequence: Sequence) -> int:
        request_id = sequence.request.request_id
        row = self._row_of.pop(request_id, -1)
        if row >= 0:
            self._row_of[request_id] = row
        return row

    def _new_row(self, sequence: Sequence) -> int:
        # Whoever is planned and has a row stands at the end by now, so the first is somebody else's.
        row = self._free.pop() if self._free else self._row_of.pop(next(iter(self._row_of)))
        self._row_of[sequence.request.request_id] = row
        self._known[row] = 0
        params = sequence.request.sampling
        self.temperature[row] = 0.0 if params.greedy else params.temperature
        self.top_k[row] = min(params.top_k, _MOST_TOP_K)
        self.top_p[row], self.min_p[row] = params.top_p, params.min_p
        self.seed[row] = np.uint64(params.seed).astype(np.int64)
        return row

    def _edits(self, works: list[Chunk], rows: list[int]) -> TableEdits:
        """Between two preemptions a table only grows, so its length says what is new."""
        width, places, added = self.tables.shape[1], [], []
        for work, row in zip(works, rows, strict=True):
            blocks, epoch = work.sequence.blocks, work.sequence.num_preemptions
            known = self._known[row] if self._epoch[row] == epoch else 0
            if known == len(blocks):
                continue
            self.tables[row, known : len(blocks)] = blocks[known:]
            places.append(np.arange(row * width + known, row * width + len(blocks), dtype=np.int64))
            added.extend(blocks[known:])
            self._known[row], self._epoch[row] = len(blocks), epoch
        where = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        return TableEdits(where, np.array(added, dtype=np.int32))
