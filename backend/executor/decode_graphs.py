"""Decode steps as captured graphs: one launch in place of some hundreds, at powers of two of sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from backend.executor.device import Device


def graph_sizes(max_batch_size: int) -> list[int]:
    """Powers of two up to the first that holds ``max_batch_size`` sequences, largest first."""
    largest = max(max_batch_size - 1, 0).bit_length()
    return [1 << exponent for exponent in range(largest, -1, -1)]


class DecodeGraphs:
    """The captured graph of each size."""

    def __init__(self, device: Device, sizes: Iterable[int]) -> None:
        """sizes: of what ``capture`` is to capture."""
        self._device = device
        self._sizes = sorted(sizes, reverse=True)
        self._replay: dict[int, Callable[[], None]] = {}

    def capture(self, prepared: Callable[[int], Callable[[], None]]) -> None:
        """Capture all sizes, the largest first: the smaller ones then find room in the memory that it took.

        prepared(size): makes the inputs of a step of so many sequences, and returns the run to be captured.
        """
        for size in self._sizes:
            self._replay[size] = self._device.capture(prepared(size))

    def size_for(self, num_sequences: int) -> int | None:
        """The smallest captured size that holds so many sequences, or None."""
        fitting = [size for size in self._replay if size >= num_sequences]
        return min(fitting, default=None)

    def replay(self, size: int) -> None:
        """Put the graph on the stream."""
        self._replay[size]()
