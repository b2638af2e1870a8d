"""One step on the device: from the arrays that were sent to the sampled tokens, with no word from the host between."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from backend.executor.device_special import SpecialStep
from backend.executor.step_arrays import UNKNOWN
from backend.model.batch import StepInputs
from backend.model.decoder import Decoder
from kernels.sampling.triton_kernel import RowSampling, sample


class StepViews(NamedTuple):
    """``StepArrays``, on the device."""

    known: Tensor
    positions: Tensor
    slots: Tensor
    query_start: Tensor
    kv_lengths: Tensor
    rows: Tensor
    logit_rows: Tensor
    sampled_rows: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seed: Tensor
    draw_positions: Tensor


class DeviceTables:
    """What lasts from step to step, and the buffers whose addresses captured graphs hold.

    blocks: int32 ``[num_rows + 1, width]``, block table of each row. last_tokens: int64 ``[num_rows + 1]``, the token
    sampled last for each. tokens: int64 ``[most_sequences]``, those of the step that ran last.
    """

    def __init__(self, num_rows: int, width: int, most_sequences: int, device: torch.device) -> None:
        """most_sequences: of a step, padding included."""
        self.blocks = torch.zeros((num_rows + 1, width), dtype=torch.int32, device=device)
        self.last_tokens = torch.zeros(num_rows + 1, dtype=torch.int64, device=device)
        self.tokens = torch.zeros(most_sequences, dtype=torch.int64, device=device)
        self._of_step = torch.zeros((most_sequences, width), dtype=torch.int32, device=device)

    def edit(self, places: Tensor, blocks: Tensor) -> None:
        """Write block ids, int32 ``[E]``, to distinct places, int64 ``[E]``, of the flattened tables."""
        self.blocks.view(-1).index_copy_(0, places, blocks)

    def of_step(self, rows: Tensor) -> Tensor:
        """The tables of a step's sequences, side by side: int32 ``[S, width]``, valid until the next step."""
        return torch.index_select(self.blocks, 0, rows, out=self._of_step[: len(rows)])

    def fill_unknown(self, tokens: Tensor, rows: Tensor) -> None:
        """Replace UNKNOWN among the tokens ``[n]`` by the one sampled last for each row, in place."""
        torch.where(tokens == UNKNOWN, self.last_tokens.index_select(0, rows), tokens, out=tokens)

    def keep(self, tokens: Tensor, rows: Tensor) -> None:
        """The step's tokens ``[R]``, for the host and for the next step."""
        self.last_tokens.index_copy_(0, rows, tokens)
        self.tokens[: len(tokens)].copy_(tokens)


def run_step(
    decoder: Decoder,
    pool: Tensor,
    tables: DeviceTables,
    views: StepViews,
    num_decodes: int,
    filtered: bool,
    special: SpecialStep | None = None,
) -> None:
    """Put a whole step on the stream; its tokens come to lie in ``tables.tokens``.

    num_decodes: the leading sequences, of one token each, whose token may be unknown. filtered: False promises that
    no row is cut by top_k, top_p or min_p. special: rows to be processed before the draw, or looked at after it.
    """
    if num_decodes:
        tables.fill_unknown(views.known[:num_decodes], views.rows[:num_decodes])
    inputs = StepInputs(
        token_ids=views.known,
        positions=views.positions,
        query_start=views.query_start,
        kv_lengths=views.kv_lengths,
        block_tables=tables.of_step(views.rows),
        slot_mapping=views.slots,
        logit_rows=views.logit_rows,
    )
    logits = decoder.forward(inputs, pool)
    if not len(logits):
        return
    rows = RowSampling(
        temperature=views.temperature,
        top_k=views.top_k,
        top_p=views.top_p,
        min_p=views.min_p,
        seed=views.seed,
        position=views.draw_positions,
    )
    if special is not None:
        special.before(logits)
    tokens = sample(logits, rows, filtered)
    tables.keep(tokens, views.sampled_rows)
    if special is not None:
        special.after(tokens)
