"""DeviceWishes: what one request adds to its logits or forbids, as tensors on the device, made once."""

from __future__ import annotations

from array import array

import torch
from torch import Tensor

from backend.executor.device_history import NOTHING, DeviceHistory
from backend.sampling_params import SamplingParams


class DeviceWishes:
    """Bias and forbidden tokens of one request."""

    def __init__(self, params: SamplingParams, history: DeviceHistory) -> None:
        """Raises ValueError for a guide, which nothing here follows; who takes requests in refuses it before."""
        if params.guide is not None:
            raise ValueError("guided decoding is not there on a device")
        self.params = params
        self._history = history
        single = [word[0] for word in params.bad_words if len(word) == 1]
        self._single = history.send(single, torch.int64) if single else None
        endings = sorted(params.ending_ids) if params.min_tokens else []
        self._endings = history.send(endings, torch.int64) if endings else None
        bias = params.logit_bias
        self._bias_ids = history.send(list(array("i", bias.ids)), torch.int64) if bias else None
        self._bias = history.send(list(array("f", bias.weights)), torch.float32) if bias else None
        self._make_words([word for word in params.bad_words if len(word) > 1])

    def _make_words(self, words: list[tuple[int, ...]]) -> None:
        """beginnings: int64 ``[W, longest]``, the last token at the end, NOTHING before. completing: int64 ``[W]``."""
        self._longest = max((len(word) - 1 for word in words), default=0)
        flat = [token for word in words for token in [NOTHING] * (self._longest + 1 - len(word)) + list(word[:-1])]
        self._beginnings = self._history.send(flat, torch.int64).view(len(words), self._longest)
        self._completing = self._history.send([word[-1] for word in words], torch.int64)

    def apply(self, row: Tensor, history_row: int, num_output: int) -> None:
        """Change float32 logits ``[vocab]`` in place: bias, then what is forbidden."""
        if self._bias_ids is not None and self._bias is not None:
            row.index_add_(0, self._bias_ids, self._bias)
        if self._single is not None:
            row.index_fill_(0, self._single, -torch.inf)
        if self._endings is not None and num_output < self.params.min_tokens:
            row.index_fill_(0, self._endings, -torch.inf)
        if self._longest:
            tail = self._history.last[history_row, -self._longest :]
            begun = ((self._beginnings == tail) | (self._beginnings == NOTHING)).all(dim=1)
            # A word that has not begun costs its last token nothing: no word of the device's is read by the host.
            row.index_add_(0, self._completing, torch.where(begun, -torch.inf, 0.0))
