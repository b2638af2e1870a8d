"""StepPlan -> the tensors that the decoder reads: one padding-free batch of prompt chunks and decode tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from backend.model.batch import StepInputs
from backend.scheduler.plan import Chunk, StepPlan


class ContextRows(NamedTuple):
    """Rows of a step's logits, ``num_rows`` from ``first`` on, that are of a prompt's positions.

    chunk: place of the chunk that computes them among the plan's.
    """

    chunk: int
    first: int
    num_rows: int


class Batch(NamedTuple):
    """The inputs of a step. unknown: (row, request id) of tokens that the step before is still to bring.

    sampled: int64, those of the step's logits that are sampled from; None if all are. context: those asked for as such.
    """

    inputs: StepInputs
    unknown: list[tuple[int, int]]
    sampled: torch.Tensor | None
    context: list[ContextRows]

    def fill(self, tokens: Mapping[int, int]) -> StepInputs:
        """Put the tokens of the step before, by request id, where they belong."""
        for row, request_id in self.unknown:
            self.inputs.token_ids[row] = tokens[request_id]
        return self.inputs


def build_batch(plan: StepPlan, block_size: int) -> Batch:
    """Lay the work of a plan out, sequence after sequence: the decodes, then the chunks."""
    works = plan.works()
    lengths = np.array([work.num_tokens for work in works], dtype=np.int64)
    starts = np.array([work.start for work in works], dtype=np.int64)
    samples = np.array([work.samples for work in works], dtype=np.bool_)
    query_start = np.concatenate(([0], np.cumsum(lengths)))
    sequence_of_row = np.repeat(np.arange(len(works)), lengths)
    positions = np.arange(query_start[-1]) - query_start[sequence_of_row] + starts[sequence_of_row]
    tables = _block_tables(works)
    slots = tables[sequence_of_row, positions // block_size] * block_size + positions % block_size
    token_ids, unknown = _token_ids(works)
    logit_rows = query_start[1:][samples] - 1
    sampled, context = None, _context_rows(plan, query_start)
    if context:
        whole = np.unique(np.concatenate([logit_rows, *(np.arange(r.first, r.first + r.num_rows) for r in context)]))
        sampled = torch.from_numpy(np.searchsorted(whole, logit_rows))
        context = [rows._replace(first=int(np.searchsorted(whole, rows.first))) for rows in context]
        logit_rows = whole
    inputs = StepInputs(
        token_ids=torch.from_numpy(token_ids),
        positions=torch.from_numpy(positions),
        query_start=torch.from_numpy(query_start.astype(np.int32)),
        kv_lengths=torch.from_numpy((starts + lengths).astype(np.int32)),
        block_tables=torch.from_numpy(tables.astype(np.int32)),
        slot_mapping=torch.from_numpy(slots),
        logit_rows=torch.from_numpy(logit_rows),
    )
    return Batch(inputs, unknown, sampled, context)


def _context_rows(plan: StepPlan, query_start: NDArray[np.int64]) -> list[ContextRows]:
    """Rows of the batch that are asked for as a prompt's positions."""
    found = []
    for place, chunk in enumerate(plan.chunks):
        count = min(chunk.num_tokens, chunk.sequence.num_prompt - chunk.start)
        if chunk.sequence.context is not None and count > 0:
            found.append(ContextRows(place, int(query_start[len(plan.decodes) + place]), count))
    return found


def _token_ids(works: list[Chunk]) -> tuple[NDArray[np.int64], list[tuple[int, int]]]:
    """Known ids in order, and which rows wait for the step before; these hold 0 for now."""
    ids: list[int] = []
    unknown = []
    for work in works:
        end = work.start + work.num_tokens
        ids.extend(work.sequence.tokens[work.start : end])
        if end > len(work.sequence.tokens):
            unknown.append((len(ids), work.sequence.request.request_id))
            ids.append(0)
    return np.array(ids, dtype=np.int64), unknown


def _block_tables(works: list[Chunk]) -> NDArray[np.int64]:
    """[sequences, longest table], padded with the null block."""
    tables = np.zeros((len(works), max((len(work.sequence.blocks) for work in works), default=0)), dtype=np.int64)
    for row, work in enumerate(works):
        tables[row, : len(work.sequence.blocks)] = work.sequence.blocks
    return tables
