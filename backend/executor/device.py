"""What the GPU executor asks of the device it runs on: a stream, events, page-locked memory, recorded launches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor


class Event(Protocol):
    """A point in the stream's order of work."""

    def record(self) -> None:
        """Stand behind all that has been put on the stream so far. Within ``Device.stream`` only."""

    def synchronize(self) -> None:
        """Wait until all work before the recorded point has finished; at once if nothing was recorded."""


class Device(Protocol):
    """One stream of one device: whatever is put on it runs in that order, while the host goes on."""

    torch_device: torch.device

    def stream(self) -> AbstractContextManager[object]:
        """Within, launches and copies go to the stream."""

    def event(self) -> Event:
        """A new event, not recorded yet."""

    def host_tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Host memory, zeroed, that copies from and to the device can use without the host waiting for them."""

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        """What ``run`` launches, recorded once, to be launched again as a whole.

        run: reads and writes tensors that live on, allocates what it likes, and neither waits for the device nor
        reads host memory. Called at least once here; its effects on tensors happen.
        """

    def synchronize(self) -> None:
        """Wait until the device has finished everything."""

    def free_bytes(self) -> int:
        """Device memory that can still be allocated."""

    def peak_bytes(self, run: Callable[[], None]) -> int:
        """Device memory that ``run`` takes at its peak, beyond what is allocated already."""


class HostEvent:
    """Work on the host has finished when the call returns."""

    def record(self) -> None:
        """Nothing is under way."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


class HostDevice:
    """Stands in for a GPU where there is none, so that the executor's own code runs everywhere.

    The kernels run in the interpreter, work is done when a call returns, and a captured run is simply run again.
    """

    def __init__(self, free_bytes: int = 1 << 30) -> None:
        """free_bytes: what the device is to claim to have."""
        self.torch_device = torch.device("cpu")
        self._free_bytes = free_bytes

    def stream(self) -> AbstractContextManager[object]:
        """The host has no streams."""
        return nullcontext()

    def event(self) -> Event:
        """An event that has always passed."""
        return HostEvent()

    def host_tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Ordinary memory."""
        return torch.zeros(shape, dtype=dtype)

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        """The run itself, tried once as a GPU would."""
        run()
        return run

    def synchronize(self) -> None:
        """Nothing is under way."""

    def free_bytes(self) -> int:
        """As claimed."""
        return self._free_bytes

    def peak_bytes(self, run: Callable[[], None]) -> int:
        """Not measured on the host: 0."""
        run()
        return 0
