"""StepPlan -> the tensors that the decoder reads: one padding-free batch of prompt chunks and decode tokens."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from backend.model.batch import StepInputs
from backend.scheduler.plan import StepPlan, Work


def build_inputs(plan: StepPlan, block_size: int) -> StepInputs:
    """Lay the chunks of a plan one after the other. Sequence s of the batch is ``plan.work[s]``."""
    lengths = np.array([work.num_tokens for work in plan.work], dtype=np.int64)
    starts = np.array([work.start for work in plan.work], dtype=np.int64)
    query_start = np.concatenate(([0], np.cumsum(lengths)))
    sequence_of_row = np.repeat(np.arange(len(lengths)), lengths)
    positions = np.arange(query_start[-1]) - query_start[sequence_of_row] + starts[sequence_of_row]
    tables = _block_tables(plan.work)
    slots = tables[sequence_of_row, positions // block_size] * block_size + positions % block_size
    samples = np.array([work.samples for work in plan.work], dtype=bool)
    return StepInputs(
        token_ids=torch.from_numpy(_token_ids(plan.work)),
        positions=torch.from_numpy(positions),
        query_start=torch.from_numpy(query_start.astype(np.int32)),
        kv_lengths=torch.from_numpy((starts + lengths).astype(np.int32)),
        block_tables=torch.from_numpy(tables.astype(np.int32)),
        slot_mapping=torch.from_numpy(slots),
        logit_rows=torch.from_numpy(query_start[1:][samples] - 1),
    )


def _token_ids(works: tuple[Work, ...]) -> NDArray[np.int64]:
    ids: list[int] = []
    for work in works:
        ids.extend(work.sequence.tokens[work.start : work.start + work.num_tokens])
    return np.array(ids, dtype=np.int64)


def _block_tables(works: tuple[Work, ...]) -> NDArray[np.int64]:
    """[sequences, longest table], padded with the null block."""
    tables = np.zeros((len(works), max(len(work.sequence.blocks) for work in works)), dtype=np.int64)
    for row, work in enumerate(works):
        tables[row, : len(work.sequence.blocks)] = work.sequence.blocks
    return tables
