"""Arrays on their way to the device and tokens on their way back, through page-locked buffers in rotation.

step N      | fill buffer 0, copy, event 0 |
step N+1    |                              | fill buffer 1, copy, event 1 |
step N+2    |                                                             | fill buffer 2, copy, event 2 |
step N+3    |                                                                       wait for event 0, fill buffer 0 ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.executor.device import Device, Event
from backend.token_detail import TokenDetail

ALIGNMENT = 16
"""Bytes. The kernels are compiled for pointers that are a multiple of this."""

_TORCH_TYPES = {np.dtype(np.int64): torch.int64, np.dtype(np.int32): torch.int32, np.dtype(np.float32): torch.float32}


def room_for(sizes: Iterable[int]) -> int:
    """Bytes of a buffer for arrays of so many bytes each."""
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)


class StagingRing:
    """Sends arrays to one device buffer, packed into one copy.

    The device buffer is overwritten by the next send; the stream's order keeps that behind whatever reads it before.
    A host buffer is filled again only when the copy that read it has passed.
    """

    def __init__(self, device: Device, num_bytes: int, depth: int = 3) -> None:
        """depth: host buffers. One more than the steps under way, so that nobody ever waits for one."""
        self._target = torch.zeros(num_bytes, dtype=torch.uint8, device=device.torch_device)
        self._buffers = [device.host_tensor((num_bytes,), torch.uint8) for _ in range(depth)]
        self._passed: list[Event] = [device.event() for _ in range(depth)]
        self._next = 0

    def send(self, arrays: Iterable[NDArray[np.generic]]) -> list[Tensor]:
        """Put a copy of the arrays on the stream; their places on the device, which depend on the sizes alone.

        arrays: int64, int32 or float32, one-dimensional and contiguous. Raises ValueError if they exceed the buffer.
        """
        turn, self._next = self._next, (self._next + 1) % len(self._buffers)
        self._passed[turn].synchronize()
        packed, views, offset = self._buffers[turn].numpy(), [], 0
        for array in arrays:
            end = offset + array.nbytes
            if end > len(packed):
                raise ValueError(f"{end} bytes for a staging buffer of {len(packed)}")
            packed[offset:end] = array.view(np.uint8)
            views.append(self._target[offset:end].view(_TORCH_TYPES[array.dtype]))
            offset = room_for((end,))
        offset = min(offset, len(packed))
        self._target[:offset].copy_(self._buffers[turn][:offset], non_blocking=True)
        self._passed[turn].record()
        return views


class TokenReturn:
    """Brings sampled tokens back. Each step under way holds a buffer of its own until it is collected."""

    def __init__(self, device: Device, most_tokens: int, depth: int = 3) -> None:
        self._device = device
        self._shape = (most_tokens,)
        self._idle = [device.host_tensor(self._shape, torch.int64) for _ in range(depth)]

    def bring(self, tokens: Tensor, details: Callable[[], Mapping[int, TokenDetail]] = dict) -> ReturningTokens:
        """Put the copy on the stream. tokens: int64 ``[n]``; may be overwritten by later work on the stream.

        details: reads what copies put on the stream before have brought; called once all have passed.
        """
        buffer = self._idle.pop() if self._idle else self._device.host_tensor(self._shape, torch.int64)
        buffer[: len(tokens)].copy_(tokens, non_blocking=True)
        arrived = self._device.event()
        arrived.record()
        return ReturningTokens(self._idle, buffer, len(tokens), arrived, details)


class ReturningTokens:
    """The tokens of one step, under way to the host."""

    def __init__(
        self,
        idle: list[Tensor],
        buffer: Tensor,
        count: int,
        arrived: Event,
        details: Callable[[], Mapping[int, TokenDetail]],
    ) -> None:
        self._idle, self._buffer, self._count, self._arrived = idle, buffer, count, arrived
        self._details = details

    def collect(self) -> list[int]:
        """Wait for the step, and give the buffer back: to be called once."""
        self._arrived.synchronize()
        tokens: list[int] = self._buffer[: self._count].tolist()
        self._idle.append(self._buffer)
        return tokens

    def details(self) -> Mapping[int, TokenDetail]:
        """Of the tokens whose sequences asked for them, by place; after ``collect``."""
        return self._details()

    def context(self) -> Mapping[int, bytes]:
        """None: who asks for a prompt's logits on this executor is refused at the door."""
        return {}
