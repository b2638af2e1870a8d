"""When a model's queue is woken, on wakes that only count."""

import threading
import time
from collections.abc import Iterator

import pytest

from backend.serving.queue_waker import QueueWaker

QUIET, PATIENCE = 0.01, 10.0
TIMES = 2


class Wakes:
    """Counts them; each lasts until it is let go, and fails if it is to."""

    def __init__(self) -> None:
        self.begun, self.held, self.fail = 0, False, False
        self.changed = threading.Condition()

    def __call__(self) -> None:
        with self.changed:
            self.begun += 1
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: not self.held, PATIENCE)
        if self.fail:
            raise RuntimeError("as the test wants it")

    def reach(self, number: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.begun >= number, PATIENCE)

    def are_still(self, number: int) -> bool:
        """After more than enough time for a further one."""
        time.sleep(10 * QUIET)
        return self.begun == number


@pytest.fixture
def wakes() -> Wakes:
    return Wakes()


@pytest.fixture
def waker(wakes: Wakes) -> Iterator[QueueWaker]:
    waker = QueueWaker(wakes, TIMES, quiet=QUIET)
    yield waker
    waker.close()


def execute(waker: QueueWaker, *, for_clients: bool = True) -> None:
    with waker.executing(for_clients=for_clients):
        pass


def test_after_clients_requests_the_queue_is_woken_so_many_times(waker: QueueWaker, wakes: Wakes) -> None:
    assert wakes.are_still(0), "nobody has asked for anything"
    execute(waker)
    wakes.reach(TIMES)
    assert wakes.are_still(TIMES)
    execute(waker)
    wakes.reach(2 * TIMES)
    assert wakes.are_still(2 * TIMES)


def test_a_wake_that_is_executed_leads_to_no_further_one(waker: QueueWaker, wakes: Wakes) -> None:
    execute(waker, for_clients=False)
    assert wakes.are_still(0)


def test_nothing_is_woken_during_an_execution(wakes: Wakes) -> None:
    now = [0.0]
    waker = QueueWaker(wakes, TIMES, quiet=QUIET, clock=lambda: now[0])
    execute(waker)
    with waker.executing(for_clients=False):
        now[0] = 1.0
        assert wakes.are_still(0)
    wakes.reach(1)
    waker.close()


def test_few_wakes_are_open_at_a_time_and_the_waker_waits_for_none(waker: QueueWaker, wakes: Wakes) -> None:
    wakes.held = True
    for number in range(5):
        execute(waker)
        wakes.reach(min(4, TIMES * (number + 1)))
        assert wakes.are_still(wakes.begun)
    assert wakes.begun == 4
    with wakes.changed:
        wakes.held = False
        wakes.changed.notify_all()
    execute(waker)
    wakes.reach(4 + TIMES)


def test_a_wake_that_fails_ends_nothing(waker: QueueWaker, wakes: Wakes) -> None:
    wakes.fail = True
    for number in range(1, 6):
        execute(waker)
        wakes.reach(TIMES * number)


def test_when_it_is_closed_nothing_is_woken(waker: QueueWaker, wakes: Wakes) -> None:
    execute(waker)
    waker.close()
    begun = wakes.begun
    assert wakes.are_still(begun)
