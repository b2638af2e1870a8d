"""Buffers in rotation: packed into one copy, and filled again only when the copy that read them has passed."""

import numpy as np
import pytest
import torch

from backend.executor.device import HostDevice
from backend.executor.staging import ALIGNMENT, StagingRing, TokenReturn, room_for


class WatchedEvent:
    """Remembers what happens to it."""

    def __init__(self, log: list[tuple[str, int]], number: int) -> None:
        self._log, self._number = log, number

    def record(self) -> None:
        self._log.append(("record", self._number))

    def synchronize(self) -> None:
        self._log.append(("wait", self._number))


class WatchedDevice(HostDevice):
    """Numbers its events."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, int]] = []
        self._made = 0

    def event(self) -> WatchedEvent:
        self._made += 1
        return WatchedEvent(self.log, self._made - 1)


def test_arrays_arrive_as_they_are_each_on_an_aligned_address() -> None:
    ring = StagingRing(HostDevice(), 256)
    arrays = [np.array([-1, 2**40]), np.array([7], dtype=np.int32), np.array([0.5, -2], dtype=np.float32)]
    views = ring.send(arrays)
    assert [view.tolist() for view in views] == [[-1, 2**40], [7], [0.5, -2.0]]
    assert [view.dtype for view in views] == [torch.int64, torch.int32, torch.float32]
    places = [view.data_ptr() - views[0].data_ptr() for view in views]
    assert places == [0, 16, 32]
    assert all(place % ALIGNMENT == 0 for place in places)


def test_places_depend_on_the_sizes_alone() -> None:
    ring = StagingRing(HostDevice(), 256)
    places = [[view.data_ptr() for view in ring.send([np.arange(5), np.arange(n)])][0:2] for n in (3, 3, 9)]
    assert places[0] == places[1] == places[2]


def test_a_host_buffer_is_filled_again_only_after_the_copy_that_read_it() -> None:
    device = WatchedDevice()
    ring = StagingRing(device, 64, depth=3)
    for n in range(5):
        ring.send([np.array([n])])
    turns = [[("wait", n % 3), ("record", n % 3)] for n in range(5)]
    assert device.log == [entry for turn in turns for entry in turn]


def test_the_buffers_of_the_last_sends_are_different_ones() -> None:
    ring = StagingRing(HostDevice(), 64, depth=3)
    for n in range(3):
        ring.send([np.array([n])])
    assert sorted(int(buffer[0]) for buffer in ring._buffers) == [0, 1, 2]


def test_what_exceeds_the_buffer_is_an_error_and_what_fills_it_is_not() -> None:
    ring = StagingRing(HostDevice(), 40)
    assert ring.send([np.arange(5)])[0].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="48 bytes for a staging buffer of 40"):
        ring.send([np.arange(6)])


def test_room_counts_the_alignment_of_each_array() -> None:
    assert room_for([1, 16, 17]) == 16 + 16 + 32


def test_tokens_of_several_steps_under_way_do_not_meet() -> None:
    returns, tokens, handles = TokenReturn(HostDevice(), 4, depth=1), torch.zeros(4, dtype=torch.int64), []
    for n in range(3):
        tokens[:] = torch.arange(4) + 10 * n
        handles.append(returns.bring(tokens[: n + 1]))
    assert [handle.collect() for handle in handles] == [[0], [10, 11], [20, 21, 22]]


def test_tokens_are_read_after_their_event() -> None:
    device = WatchedDevice()
    handle = TokenReturn(device, 2).bring(torch.tensor([5]))
    assert device.log == [("record", 0)]
    assert handle.collect() == [5]
    assert device.log == [("record", 0), ("wait", 0)]
