"""The gate's patience, and the watchdog's, on a clock and an engine that only say numbers."""

import threading
import time

import pytest

from backend.serving.gate import Gate
from backend.serving.watchdog import Watchdog


@pytest.mark.parametrize(("held", "patience"), [(0, 0.0), (3, 0.0), (4, 0.5), (9, 0.5), (10, 50.0), (500, 50.0)])
def test_the_gate_waits_by_what_is_held(held: int, patience: float) -> None:
    gate = Gate(lambda: held, lookahead=4, bound=10, interval=0.5)
    assert gate._patience() == patience


def test_the_gate_opens_as_soon_as_there_is_room_again() -> None:
    held = [10]
    gate = Gate(lambda: held[0], lookahead=4, bound=10, interval=60.0)
    waiting = threading.Thread(target=gate.pause)
    waiting.start()
    held[0] = 5
    gate.notify()
    time.sleep(0.05)
    assert waiting.is_alive(), "still beyond the look-ahead"
    held[0] = 3
    gate.notify()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_released_gate_lets_everything_through() -> None:
    gate = Gate(lambda: 1000, lookahead=1, bound=2, interval=60.0)
    waiting = threading.Thread(target=gate.pause)
    waiting.start()
    gate.release()
    waiting.join(10)
    assert not waiting.is_alive()
    gate.pause()


class Engine:
    def __init__(self) -> None:
        self.beats, self.busy, self.now = 0, True, 0.0
        self.dog = Watchdog(
            beats=lambda: self.beats,
            busy=lambda: self.busy,
            on_stuck=lambda: None,
            limit=10.0,
            clock=lambda: self.now,
        )

    def until(self, now: float) -> bool:
        """Look every half second until then; whether it was found stuck at the last look."""
        found = False
        while self.now < now:
            self.now = min(self.now + 0.5, now)
            found = self.dog.stuck()
        return found


def test_an_engine_that_stands_still_with_work_is_stuck_after_the_limit() -> None:
    engine = Engine()
    assert not engine.until(9.9)
    assert engine.until(10.0)


def test_an_engine_that_steps_or_has_no_work_is_not_stuck() -> None:
    engine = Engine()
    engine.until(9.0)
    engine.beats = 1
    assert not engine.until(18.0)
    engine.busy = False
    assert not engine.until(100.0)
    engine.busy = True
    assert not engine.until(109.0)
    assert engine.until(110.5)


def test_a_machine_that_was_suspended_does_not_make_an_engine_stuck() -> None:
    engine = Engine()
    engine.until(5.0)
    engine.now = 5000.0
    assert not engine.dog.stuck()
    assert not engine.until(5002.5)
    assert engine.until(5003.0)


def test_the_watchdog_calls_once_and_ends() -> None:
    called, looks = threading.Event(), []
    dog = Watchdog(
        beats=lambda: 0,
        busy=lambda: True,
        on_stuck=called.set,
        limit=0.05,
        on_look=lambda: looks.append(called.is_set()),
    )
    dog.start()
    assert called.wait(10)
    dog.stop()
    assert looks
    assert not any(looks), "whoever watches the watchdog hears of it before the end"
    assert not dog._thread.is_alive()


def test_there_is_a_sign_of_life_before_anything_can_be_missed() -> None:
    looks: list[str] = []
    dog = Watchdog(
        beats=lambda: 0, busy=lambda: False, on_stuck=lambda: None, limit=1e6, on_look=lambda: looks.append("beat")
    )
    dog.start()
    assert looks == ["beat"], "a process that is stopped before its first one is never missed"
    dog.stop()
