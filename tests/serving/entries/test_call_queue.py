"""What an entry has taken in waits in order of level and arrival, within a bound, a few at a time before the engine."""

import threading
import time

import pytest

from backend.errors import QueueFullError
from backend.serving.entries.call_queue import CallQueue

PATIENCE = 10.0


class FakeCall:
    """Waits for ``first`` before it has started, and for ``last`` before it ends."""

    def __init__(self, name: str, begun: list[str], first: threading.Event, fails: bool = False) -> None:
        self.name, self.begun, self.first, self.fails = name, begun, first, fails
        self.last = threading.Event()
        self.abandoned = False

    def run(self, started: threading.Event) -> None:
        self.begun.append(self.name)
        if self.fails:
            raise RuntimeError("as the test wants it")
        assert self.first.wait(PATIENCE)
        started.set()
        assert self.last.wait(PATIENCE)


def wait_for(begun: list[str], expected: list[str]) -> None:
    end = time.monotonic() + PATIENCE
    while begun != expected and time.monotonic() < end:
        time.sleep(0.001)
    assert begun == expected


def test_the_most_urgent_goes_next_and_a_call_that_has_started_makes_room_though_it_runs_on() -> None:
    begun: list[str] = []
    open_gate, shut_gate = threading.Event(), threading.Event()
    open_gate.set()
    calls = CallQueue(max_waiting=8, max_starting=1)
    first = FakeCall("first", begun, shut_gate)
    calls.put(2, [first])
    wait_for(begun, ["first"])
    later = [FakeCall(name, begun, open_gate) for name in ("low", "high", "gone", "normal")]
    for level, call in zip((3, 1, 1, 2), later, strict=True):
        calls.put(level, [call])
    later[2].abandoned = True
    time.sleep(0.05)
    assert begun == ["first"], "one at a time waits for its first response"
    shut_gate.set()
    wait_for(begun, ["first", "high", "normal", "low"])
    for call in (first, *later):
        call.last.set()
    calls.close()


def test_what_exceeds_the_bound_is_refused_with_the_numbers_and_a_failed_call_gives_its_place_back() -> None:
    begun: list[str] = []
    gate = threading.Event()
    calls = CallQueue(max_waiting=2, max_starting=1)
    calls.put(2, [FakeCall("fails", begun, gate, fails=True)])
    calls.put(2, [blocked := FakeCall("blocks", begun, gate)])
    wait_for(begun, ["fails", "blocks"])
    calls.put(2, [FakeCall("a", begun, gate)])
    with pytest.raises(QueueFullError, match="Exceeds maximum queue size: 1 wait, at most 2 may"):
        calls.put(1, [FakeCall("b", begun, gate), FakeCall("c", begun, gate)])
    calls.put(1, [FakeCall("d", begun, gate)])
    blocked.last.set()
    calls.close()
    gate.set()
    assert begun == ["fails", "blocks"]
