"""The GPU executor: a step is put on the device's stream whole, and nobody waits for it but who collects its tokens.

engine thread | schedule N+1, launch | collect N | commit N, deliver | schedule N+2, launch | collect N+1 ...
stream        | ------- step N -------------- | ------- step N+1 ----------------------- | --- step N+2 ...

A step that needs a token of the step before finds it on the device. So the host may be a whole step ahead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from backend.executor.decode_graphs import DecodeGraphs
from backend.executor.device import Device
from backend.executor.device_special import SpecialRows, SpecialStep
from backend.executor.device_step import DeviceTables, StepViews, run_step
from backend.executor.sequence_rows import SequenceRows, TableEdits
from backend.executor.staging import ReturningTokens, StagingRing, TokenReturn, room_for
from backend.executor.step_arrays import StepArrays, bytes_per_step, null_arrays, padded_decode, step_arrays
from backend.executor.stream_copier import StreamCopier
from backend.kv.block_table import blocks_for
from backend.model.decoder import Decoder
from backend.scheduler.plan import StepPlan

MOST_EDITS = 1 << 14
"""Changed entries of block tables that travel with a step; more of them go ahead in copies of their own."""

_EDIT_BYTES = (8 * MOST_EDITS, 4 * MOST_EDITS)


class Decoders(NamedTuple):
    """One model, twice: for any batch, and for batches of one row per sequence."""

    mixed: Decoder
    decode: Decoder


class StepLimits(NamedTuple):
    """What a step may be: tokens, sequences, and tokens that one sequence may have. block_size: tokens of a block."""

    max_num_tokens: int
    max_batch_size: int
    max_seq_len: int
    block_size: int


class GpuExecutor:
    """Owns decoders, pool ``[num_blocks, layers, 2, kv_heads, block_size, head_dim]`` and the host's copy space.

    For one thread. Everything it puts on the device runs in the order of the calls.
    """

    def __init__(
        self,
        device: Device,
        decoders: Decoders,
        pool: Tensor,
        host: Tensor,
        limits: StepLimits,
        graph_sizes: Iterable[int] = (),
    ) -> None:
        """host: ``[host slots, *pool.shape[1:]]``, of ``Device.host_tensor``. graph_sizes: decode batches to capture.

        The graphs are captured here.
        """
        sizes = list(graph_sizes)
        most_sequences = max([limits.max_batch_size, *sizes])
        most_tokens = max(limits.max_num_tokens, most_sequences)
        self.device = device
        self._decoders, self._pool, self._limits = decoders, pool, limits
        self._copier = StreamCopier(device, pool, host)
        self._special = SpecialRows(device, limits.max_batch_size, decoders.mixed.config.vocab_size)
        self._rows = SequenceRows(limits.max_batch_size, blocks_for(limits.max_seq_len, limits.block_size))
        width = self._rows.tables.shape[1]
        self._tables = DeviceTables(limits.max_batch_size, width, most_sequences, device.torch_device)
        self._ring = StagingRing(device, room_for((*bytes_per_step(most_tokens, most_sequences), *_EDIT_BYTES)))
        self._returns = TokenReturn(device, most_sequences)
        self.graphs = DecodeGraphs(device, sizes)
        device.synchronize()  # what was made on other streams is there
        with torch.inference_mode(), device.stream():
            self.graphs.capture(self._prepared)

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> ReturningTokens:
        """Put a step on the stream; at most as many steps are under way as the staging has buffers."""
        with self.device.stream():
            self._copier.run(plan.copies)
            works = plan.works()
            if not works:
                return self._returns.bring(self._tables.tokens[:0])
            rows, edits = self._rows.place(works)
            arrays = step_arrays(works, rows, self._rows, self._limits.block_size)
            special = self._special.step(works, rows.tolist())
            # A graph knows nothing of special rows; a step that has any is launched piece by piece.
            size = None if plan.chunks or special else self.graphs.size_for(len(works))
            if size is None:
                self._run_eagerly(arrays, edits, len(plan.decodes), special)
            else:
                self._send(padded_decode(arrays, size, self._rows.null_row), edits)
                self.graphs.replay(size)
            tokens = self._tables.tokens[: len(arrays.logit_rows)]
            return self._returns.bring(tokens, special.details) if special else self._returns.bring(tokens)

    def _run_eagerly(
        self, arrays: StepArrays, edits: TableEdits, num_decodes: int, special: SpecialStep | None = None
    ) -> None:
        views = self._send(arrays, edits)
        run_step(self._decoders.mixed, self._pool, self._tables, views, num_decodes, arrays.filtered, special)

    def _send(self, arrays: StepArrays, edits: TableEdits) -> StepViews:
        """One copy brings a step's arrays and the changes of the block tables, which are made at once."""
        while len(edits.places) > MOST_EDITS:
            self._tables.edit(*self._ring.send(part[:MOST_EDITS] for part in edits))
            edits = TableEdits(edits.places[MOST_EDITS:], edits.blocks[MOST_EDITS:])
        *views, places, blocks = self._ring.send((*arrays, *edits))
        if len(edits.places):
            self._tables.edit(places, blocks)
        return StepViews(*views)

    def _prepared(self, size: int) -> Callable[[], None]:
        """Inputs of a decode step of so many null sequences, and its run: later steps' inputs lie in the same places.

        Whether a row is filtered is not known to a graph, so each looks.
        """
        arrays = null_arrays([1] * size, self._rows, self._limits.block_size)
        views = self._send(arrays, _NO_EDITS)
        return lambda: run_step(self._decoders.decode, self._pool, self._tables, views, size, filtered=True)

    @torch.inference_mode()
    def rehearse(self, num_tokens: int, num_sequences: int, filtered: bool = True) -> None:
        """Compute so many tokens of that many sequences or more, in the null block, and wait: warms up and measures.

        More sequences are made where one would be longer than ``max_seq_len``; all sample. filtered: through top_p.
        """
        lengths = self._rehearsed_lengths(num_tokens, num_sequences)
        arrays = null_arrays(lengths, self._rows, self._limits.block_size)
        top_p = arrays.top_p * np.float32(0.5 if filtered else 1.0)
        arrays = arrays._replace(temperature=arrays.temperature + 1, top_p=top_p)
        with self.device.stream():
            self._run_eagerly(arrays, _NO_EDITS, 0)
        self.device.synchronize()

    def warm_up(self) -> None:
        """Compile what a mixed step can choose, so that no request waits for it.

        That is tiles for many rows a sequence and for few, and draws with filters and without.
        """
        self.rehearse(self._limits.max_num_tokens, 1)
        self.rehearse(self._limits.max_batch_size, self._limits.max_batch_size, filtered=False)

    @torch.inference_mode()
    def rehearse_decode(self, size: int) -> None:
        """What a graph of this size holds, run as it is, and wait."""
        with self.device.stream():
            self._prepared(size)()
        self.device.synchronize()

    def _rehearsed_lengths(self, num_tokens: int, num_sequences: int) -> list[int]:
        count = min(max(num_sequences, -(-num_tokens // self._limits.max_seq_len)), self._limits.max_batch_size)
        length = min(num_tokens // count, self._limits.max_seq_len)
        lengths = [max(length, 1)] * count
        lengths[0] = min(lengths[0] + max(num_tokens - sum(lengths), 0), self._limits.max_seq_len)
        return lengths

    def seconds_per_token(self, num_tokens: int) -> float:
        """Measured time of computing a prompt, per token, on a batch of so many tokens in the null block."""
        computed = sum(self._rehearsed_lengths(num_tokens, 1))
        self.rehearse(num_tokens, 1)
        start = time.perf_counter()
        self.rehearse(num_tokens, 1)
        return (time.perf_counter() - start) / computed

    def seconds_per_block(self) -> float:
        """Measured time of copying one block to the host."""
        return self._copier.seconds_per_block()

    def close(self) -> None:
        """Wait for the steps launched so far."""
        self.device.synchronize()


_NO_EDITS = SequenceRows(1, 1).place([])[1]
