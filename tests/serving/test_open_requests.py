"""A request that is open is stopped by its client's id or by its own key, and by nothing that can be guessed."""

import threading
import time
from collections.abc import Iterator

import pytest

from backend.serving.open_requests import OpenRequests


class Channel:
    def __init__(self, gone: bool = False) -> None:
        self.gone = gone

    def is_cancelled(self) -> bool:
        return self.gone


class Stream:
    def __init__(self, gone: bool = False) -> None:
        self.sender = Channel(gone)
        self.ended = False


class Cancelled:
    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.came = threading.Event()

    def __call__(self, number: int) -> None:
        self.numbers.append(number)
        self.came.set()


@pytest.fixture
def cancelled() -> Cancelled:
    return Cancelled()


@pytest.fixture
def requests(cancelled: Cancelled) -> Iterator[OpenRequests]:
    made = OpenRequests(cancelled, 0.01)
    yield made
    made.close()


def test_a_key_stops_its_request_alone_and_the_engines_number_stops_none(
    requests: OpenRequests, cancelled: Cancelled
) -> None:
    for number, key in ((1, 777), (2, 888), (3, 0)):
        requests.add(number, "", Stream(), key)
    for guessed in (0, 1, 2, 3, 889):
        requests.stop_key(guessed)
    assert cancelled.numbers == []
    requests.stop_key(888)
    assert cancelled.numbers == [2]


def test_a_client_id_stops_all_of_its_requests_and_an_empty_one_stops_none(
    requests: OpenRequests, cancelled: Cancelled
) -> None:
    for number, name in ((1, "a"), (2, "b"), (3, "a"), (4, "")):
        requests.add(number, name, Stream())
    requests.stop_client("")
    requests.stop_client("c")
    assert cancelled.numbers == []
    requests.stop_client("a")
    assert cancelled.numbers == [1, 3]


def test_the_request_of_a_client_that_has_gone_is_cancelled_and_an_ended_one_is_forgotten(
    requests: OpenRequests, cancelled: Cancelled
) -> None:
    ended, gone = Stream(), Stream(gone=True)
    ended.ended = True
    requests.add(1, "a", ended)
    requests.add(2, "b", gone)
    assert cancelled.came.wait(10)
    gone.ended = True
    end = time.monotonic() + 10
    while requests._open and time.monotonic() < end:
        time.sleep(0.01)
    assert requests._open == {}
    assert set(cancelled.numbers) == {2}


@pytest.mark.parametrize(("interval", "num_open", "per_round"), [(0.01, 40, 2), (0.1, 40, 4), (0.1, 5, 2), (0.1, 1, 1)])
def test_a_round_asks_a_few_and_all_have_their_turn_within_a_second_of_rounds(
    interval: float, num_open: int, per_round: int, cancelled: Cancelled
) -> None:
    requests = OpenRequests(cancelled, interval)
    requests.close()  # the rounds are taken by hand
    for number in range(num_open):
        requests.add(number, "", Stream())
    sizes, asked = [], set()
    for _ in range(-(-num_open // per_round)):
        few = requests._next_few()
        sizes.append(len(few))
        asked |= {number for number, _ in few}
    assert sizes[0] == per_round
    assert asked == set(range(num_open))


def test_those_of_whom_another_model_asks_have_their_turn_once_in_five_seconds(cancelled: Cancelled) -> None:
    requests = OpenRequests(cancelled, 0.1)
    requests.close()
    for number in range(40):
        requests.add(number, "", Stream(), seldom=number % 2 == 0)
    turns: dict[int, int] = dict.fromkeys(range(40), 0)
    for _ in range(100):  # ten seconds of rounds
        for number, _ in requests._next_few():
            turns[number] += 1
    assert {turns[number] for number in range(0, 40, 2)} == {2}
    assert {turns[number] for number in range(1, 40, 2)} == {10}


def test_a_request_that_comes_after_a_time_without_any_is_asked_too(
    requests: OpenRequests, cancelled: Cancelled
) -> None:
    end = time.monotonic() + 10
    requests.add(1, "", first := Stream())
    first.ended = True
    while requests._any.is_set() and time.monotonic() < end:
        time.sleep(0.01)
    assert not requests._any.is_set(), "the watch goes on looking with nothing open"
    requests.add(2, "", Stream(gone=True))
    assert cancelled.came.wait(10)
    assert set(cancelled.numbers) == {2}
