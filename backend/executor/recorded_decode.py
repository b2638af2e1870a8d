"""Decode steps on the CPU as recordings: the layers' kernels, some hundreds, in one call in place of one each."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backend.model.batch import StepInputs
from backend.model.decoder import Decoder
from backend.model.rope import RopeConfig, Rotation
from kernels.operations import Recorder

MOST_ROWS = 64
"""With more rows than this, what Python does between the kernels is no part of a step worth the memory."""


class _Step(NamedTuple):
    """A recording, and the memory from which it reads and to which it writes."""

    recording: Any
    hidden: Tensor  # [rows, E]
    rotations: dict[RopeConfig, Rotation]
    inputs: StepInputs
    normed: Tensor  # [rows, E]


class RecordedDecode:
    """A decoder over one pool. A step in which each sequence has one row is recorded once per number of rows.

    The recording computes what the decoder would, bit for bit, for it runs the same kernels on the same numbers.
    """

    def __init__(self, decoder: Decoder, pool: Tensor, recorder: Recorder, max_blocks: int) -> None:
        """max_blocks: the longest block table that a sequence can have."""
        self._decoder = decoder
        self._pool = pool
        self._recorder = recorder
        self._max_blocks = max_blocks
        self._steps: dict[int, _Step] = {}

    @torch.inference_mode()
    def forward(self, inputs: StepInputs) -> Tensor:
        """As ``Decoder.forward``."""
        rows = inputs.positions.shape[0]
        if rows > MOST_ROWS or rows != inputs.kv_lengths.shape[0] or inputs.block_tables.shape[1] > self._max_blocks:
            return self._decoder.forward(inputs, self._pool)
        step = self._steps.get(rows)
        if step is None:
            step = self._steps[rows] = self._record(inputs)
        else:
            self._fill(step, inputs)
            self._recorder.replay(step.recording)
        normed = step.normed if inputs.logit_rows.shape[0] == rows else step.normed[inputs.logit_rows]
        return self._decoder.logits(normed)

    def _record(self, inputs: StepInputs) -> _Step:
        rows, width = inputs.block_tables.shape
        tables = torch.zeros((rows, self._max_blocks), dtype=torch.int32)
        tables[:, :width] = inputs.block_tables
        own = dataclasses.replace(
            inputs,
            query_start=inputs.query_start.clone(),
            kv_lengths=inputs.kv_lengths.clone(),
            slot_mapping=inputs.slot_mapping.clone(),
            block_tables=tables,
        )
        hidden, rotations = self._decoder.embed(inputs.token_ids), self._decoder.rotations(inputs.positions)
        with self._recorder.recording() as recording:
            normed = self._decoder.run_layers(hidden, rotations, own, self._pool)
        return _Step(recording, hidden, rotations, own, normed)

    def _fill(self, step: _Step, inputs: StepInputs) -> None:
        """Rows are sequences, so ``query_start`` is what it was."""
        step.hidden.copy_(self._decoder.embed(inputs.token_ids))
        for rope, turned in self._decoder.rotations(inputs.positions).items():
            step.rotations[rope].cos.copy_(turned.cos)
            step.rotations[rope].sin.copy_(turned.sin)
        step.inputs.kv_lengths.copy_(inputs.kv_lengths)
        step.inputs.slot_mapping.copy_(inputs.slot_mapping)
        step.inputs.block_tables[:, : inputs.block_tables.shape[1]] = inputs.block_tables
