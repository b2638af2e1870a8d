"""The rows of a step whose logits are changed before the draw, or whose tokens come with details, on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from backend.executor.device import Device
from backend.executor.device_history import DeviceHistory
from backend.executor.device_wishes import DeviceWishes
from backend.request import Sequence
from backend.sampling_params import SamplingParams
from backend.scheduler.plan import Chunk
from backend.token_detail import TokenDetail
from kernels.penalties.triton_kernel import penalise
from kernels.token_log_probs.reference import log_probs
from kernels.token_log_probs.triton_kernel import token_log_probs

_ROWS_AT_ONCE = 16
"""Penalised together. Bounds the memory for copies of their rows, which comes out of what the pool leaves free."""


class _Row(NamedTuple):
    """place: among the step's logits. row: of the device's tables."""

    place: int
    row: int
    num_output: int
    wishes: DeviceWishes

    @property
    def params(self) -> SamplingParams:
        return self.wishes.params


class SpecialRows:
    """Keeps what processed sequences need in the rows that ``SequenceRows`` has given them."""

    def __init__(self, device: Device, num_rows: int, vocab_size: int) -> None:
        self._device = device
        self.history = DeviceHistory(device, num_rows, vocab_size)
        # By row: whose it is, the position at which its history stands, its wishes.
        self._owners: dict[int, tuple[int, int, DeviceWishes]] = {}

    def step(self, works: list[Chunk], rows: list[int]) -> SpecialStep | None:
        """What a step does beside the usual; None if nothing. rows: of the works, as placed."""
        if not any(work.sequence.request.sampling.special for work in works):
            return None
        sampling = [(work, row) for work, row in zip(works, rows, strict=True) if work.samples]
        special = [
            self._row(place, work.sequence, row, work.start + work.num_tokens)
            for place, (work, row) in enumerate(sampling)
            if work.sequence.request.sampling.special
        ]
        return SpecialStep(self._device, self.history, special) if special else None

    def _row(self, place: int, sequence: Sequence, row: int, position: int) -> _Row:
        """A history that does not stand at this position is loaded anew; its tokens are all known then."""
        request_id, params = sequence.request.request_id, sequence.request.sampling
        owner, stands_at, wishes = self._owners.get(row, (None, 0, None))
        if wishes is None or owner != request_id:
            wishes = DeviceWishes(params, self.history)
        if params.reads_tokens and (owner != request_id or stands_at != position):
            tokens = sequence.tokens[:position]
            if len(tokens) < position:
                raise ValueError(f"token {len(tokens)} of {sequence!r} is not known, needed are {position}")
            self.history.load(row, tokens, sequence.num_prompt)
        self._owners[row] = (request_id, position + 1, wishes)
        return _Row(place, row, position - sequence.num_prompt, wishes)


class SpecialStep:
    """One step's special rows: ``before`` the draw, ``after`` it, and their details when the step has finished."""

    def __init__(self, device: Device, history: DeviceHistory, rows: list[_Row]) -> None:
        self._device, self._history = device, history
        self._processed = [row for row in rows if row.params.processed]
        self._detailed = [row for row in rows if row.params.detailed]
        self._raw: Tensor | None = None
        self.details: Callable[[], Mapping[int, TokenDetail]] = dict

    def before(self, logits: Tensor) -> None:
        """Process rows of float32 logits ``[R, vocab]`` in place, keeping those as they were that details are of."""
        if self._detailed:
            self._raw = logits.index_select(0, self._ids([row.place for row in self._detailed]))
        for start in range(0, len(self._processed), _ROWS_AT_ONCE):
            self._process(logits, self._processed[start : start + _ROWS_AT_ONCE])

    def _process(self, logits: Tensor, rows: list[_Row]) -> None:
        penalised = [row for row in rows if row.params.penalised]
        if penalised:
            places = self._ids([row.place for row in penalised])
            logits.index_copy_(0, places, self._penalised(logits.index_select(0, places), penalised))
        for row in rows:
            row.wishes.apply(logits[row.place], row.row, row.num_output)

    def _penalised(self, logits: Tensor, rows: list[_Row]) -> Tensor:
        table_rows = self._ids([row.row for row in rows])
        repetition, frequency, presence = (
            self._history.send(values, torch.float32)
            for values in (
                [row.params.repetition_penalty for row in rows],
                [row.params.frequency_penalty for row in rows],
                [row.params.presence_penalty for row in rows],
            )
        )
        counts = self._history.output_counts.index_select(0, table_rows)
        in_prompt = self._history.in_prompt.index_select(0, table_rows)
        no_ids = torch.empty((len(rows), 0), dtype=torch.int32, device=logits.device)
        no_bias = torch.empty((len(rows), 0), dtype=torch.float32, device=logits.device)
        return penalise(logits, counts, in_prompt, repetition, frequency, presence, no_ids, no_bias)

    def after(self, tokens: Tensor) -> None:
        """Take in the drawn tokens, int64 ``[R]``, and put the details' way back on the stream."""
        reading = [row for row in self._processed if row.params.reads_tokens]
        if reading:
            drawn = tokens.index_select(0, self._ids([row.place for row in reading]))
            self._history.push(self._ids([row.row for row in reading]), drawn)
        if self._raw is not None:
            self._bring_details(self._raw, tokens.index_select(0, self._ids([row.place for row in self._detailed])))
            self._raw = None

    def _bring_details(self, raw: Tensor, tokens: Tensor) -> None:
        chosen = self._to_host(token_log_probs(raw, tokens))
        width = max(row.params.top_log_probs for row in self._detailed)
        best = log_probs(raw).topk(width) if width else None
        ids = self._to_host(best.indices) if best is not None else None
        values = self._to_host(best.values) if best is not None else None
        kept = self._to_host(raw) if any(row.params.generation_logits for row in self._detailed) else None

        def details() -> Mapping[int, TokenDetail]:
            return {
                row.place: TokenDetail(
                    float(chosen[n]),
                    _top(ids, values, n, row.params.top_log_probs),
                    kept[n].numpy().tobytes() if kept is not None and row.params.generation_logits else None,
                )
                for n, row in enumerate(self._detailed)
            }

        self.details = details

    def _to_host(self, tensor: Tensor) -> Tensor:
        host = self._device.host_tensor(tuple(tensor.shape), tensor.dtype)
        return host.copy_(tensor, non_blocking=True)

    def _ids(self, values: list[int]) -> Tensor:
        return self._history.send(values, torch.int64)


def _top(ids: Tensor | None, values: Tensor | None, row: int, count: int) -> tuple[tuple[int, float], ...]:
    if ids is None or values is None:
        return ()
    return tuple(zip(ids[row, :count].tolist(), values[row, :count].tolist(), strict=True))
