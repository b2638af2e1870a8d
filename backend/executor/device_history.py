"""DeviceHistory: the tokens of the sequences in the device's rows, as penalties and bad words read them there.

The host may be a step ahead and not know the last token yet; the device always does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from backend.executor.device import Device
from backend.sampling_params import MAX_WORD_IDS

NOTHING = -1
"""Stands in ``last`` where a sequence has no token."""


class DeviceHistory:
    """One row for each place of ``SequenceRows``; a row's content is of use once it has been loaded.

    output_counts: int32 ``[num_rows, vocab]``. in_prompt: bool ``[num_rows, vocab]``. last: int64 ``[num_rows,
    MAX_WORD_IDS - 1]``, the last tokens, the very last at the end.
    """

    def __init__(self, device: Device, num_rows: int, vocab_size: int) -> None:
        where = device.torch_device
        self._device = device
        self._vocab_size = vocab_size
        self.output_counts = torch.zeros((num_rows, vocab_size), dtype=torch.int32, device=where)
        self.in_prompt = torch.zeros((num_rows, vocab_size), dtype=torch.bool, device=where)
        self.last = torch.full((num_rows, MAX_WORD_IDS - 1), NOTHING, dtype=torch.int64, device=where)

    def load(self, row: int, tokens: list[int], num_prompt: int) -> None:
        """Write a row anew: the tokens so far, prompt first."""
        ids = self.send(tokens, torch.int64)
        output, width = ids[num_prompt:], self.last.shape[1]
        self.output_counts[row].zero_().index_add_(0, output, torch.ones_like(output, dtype=torch.int32))
        self.in_prompt[row].zero_().index_fill_(0, ids[:num_prompt], True)
        self.last[row].fill_(NOTHING)
        tail = ids[-width:]
        self.last[row, width - len(tail) :] = tail

    def push(self, rows: Tensor, tokens: Tensor) -> None:
        """One more output token for each of these rows, distinct. Both int64 ``[n]``, on the device."""
        ones = torch.ones_like(tokens, dtype=torch.int32)
        self.output_counts.view(-1).index_add_(0, rows * self._vocab_size + tokens, ones)
        moved = torch.cat((self.last.index_select(0, rows)[:, 1:], tokens[:, None]), dim=1)
        self.last.index_copy_(0, rows, moved)

    def send(self, values: list[int] | list[float], dtype: torch.dtype) -> Tensor:
        """A tensor on the device, without waiting for it."""
        host = self._device.host_tensor((len(values),), dtype)
        host.copy_(torch.tensor(values, dtype=dtype))
        return host.to(self._device.torch_device, non_blocking=True)
