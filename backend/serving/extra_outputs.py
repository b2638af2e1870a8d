"""ExtraOutputs: the outputs of one sequence that only those get who ask: log-probabilities, logits, measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.request import Sequence
from backend.sampling_params import SamplingParams
from backend.token_detail import TokenDetail

Arrays = Mapping[str, NDArray[Any]]
NOTHING: Arrays = {}


class ExtraOutputs:
    """Gathers what belongs to the tokens of the next response. Used under its stream's lock.

    Outputs, without the batch dimension, for n tokens of this response: ``output_log_probs`` float32 ``[1, n]``,
    ``log_prob_ids`` int32 ``[1, n]``, the tokens that these are of, ``cum_log_probs`` float32 ``[1]``, the sum over all
    tokens so far; with k alternatives ``top_log_prob_ids`` int32 and ``top_log_probs`` float32 ``[n, k]``;
    ``generation_logits`` float32 ``[1, n, vocab]``. What they are of says ``TokenDetail``. With the last response,
    ``context_logits`` float32 ``[prompt, vocab]`` and those of ``_measurements``.
    """

    def __init__(self, sampling: SamplingParams, vocab_size: int, measured: bool, clock: Callable[[], float]) -> None:
        """measured: whether the last response is to carry measurements. clock: the scheduler's, in seconds."""
        self._sampling = sampling
        self._vocab_size = vocab_size
        self._measured = measured
        self._clock = clock
        self._sequence: Sequence | None = None
        self._details: list[TokenDetail] = []
        self._ids: list[int] = []
        self._sum = 0.0
        self._first_token = self._last_token = 0.0

    def follow(self, sequence: Sequence) -> None:
        """The sequence whose tokens are to come."""
        self._sequence = sequence

    def push(self, token_id: int) -> None:
        """One more token: take its details over from the sequence."""
        self.tick()
        if self._sequence is not None and self._sequence.details is not None:
            detail = self._sequence.details.popleft()
            self._details.append(detail)
            self._ids.append(token_id)
            self._sum += detail.log_prob

    def tick(self) -> None:
        """Now there is a token, or all that there are."""
        if self._measured:
            self._last_token = self._clock()
            self._first_token = self._first_token or self._last_token

    def take(self, final: bool) -> Arrays:
        """The outputs of the next response."""
        outputs = self._of_tokens() if self._sampling.detailed else {}
        self._details, self._ids = [], []
        if final and self._measured and self._sequence is not None:
            outputs |= self._measurements(self._sequence)
        if final and self._sequence is not None and self._sequence.context is not None:
            outputs["context_logits"] = self._context(self._sequence.context)
        return outputs

    def _context(self, parts: Mapping[int, bytes]) -> NDArray[Any]:
        """Of the positions that were computed, from the first on: all, unless the request ended before that.

        A part computed again after a preemption, in other chunks, may overlap another.
        """
        pieces = {start: np.frombuffer(data, np.float32).reshape(-1, self._vocab_size) for start, data in parts.items()}
        whole = np.zeros(
            (max((start + len(p) for start, p in pieces.items()), default=0), self._vocab_size), np.float32
        )
        for start, piece in pieces.items():
            whole[start : start + len(piece)] = piece
        return whole

    def _of_tokens(self) -> dict[str, NDArray[Any]]:
        details, count = self._details, len(self._details)
        outputs: dict[str, NDArray[Any]] = {}
        if self._sampling.log_probs:
            outputs["output_log_probs"] = np.array([[detail.log_prob for detail in details]], dtype=np.float32)
            outputs["log_prob_ids"] = np.array([self._ids], dtype=np.int32)
            outputs["cum_log_probs"] = np.array([self._sum], dtype=np.float32)
        if width := self._sampling.top_log_probs:
            pairs = np.array([detail.top for detail in details], dtype=np.float64).reshape(count, width, 2)
            outputs["top_log_prob_ids"] = pairs[:, :, 0].astype(np.int32)
            outputs["top_log_probs"] = pairs[:, :, 1].astype(np.float32)
        if self._sampling.generation_logits:
            joined = b"".join(detail.logits or b"" for detail in details)
            outputs["generation_logits"] = np.frombuffer(joined, dtype=np.float32).reshape(1, count, self._vocab_size)
        return outputs

    def _measurements(self, sequence: Sequence) -> dict[str, NDArray[Any]]:
        """Blocks given to the sequence, and times in nanoseconds on the engine's steady clock; 0 for what never was."""
        blocks = {
            "kv_cache_reused_blocks": sequence.num_reused_blocks,
            "kv_cache_alloc_new_blocks": sequence.num_new_blocks,
            "kv_cache_alloc_total_blocks": sequence.num_reused_blocks + sequence.num_new_blocks,
        }
        times = {
            "arrival_time_ns": sequence.request.arrived,
            "first_scheduled_time_ns": sequence.first_scheduled,
            "first_token_time_ns": self._first_token,
            "last_token_time_ns": self._last_token,
        }
        return {name: np.array([count], dtype=np.int32) for name, count in blocks.items()} | {
            name: np.array([round(seconds * 1e9)], dtype=np.int64) for name, seconds in times.items()
        }
