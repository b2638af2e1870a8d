"""What is reported of an answer whose responses come at known times."""

import pytest

from loadtests import measure
from loadtests.asks import Ask
from loadtests.doors.base import DoorError, Piece


class Played:
    """A door and a clock: each piece comes at its time, in seconds; an error comes as it stands."""

    name = "played"

    def __init__(self, *script, counts_pieces=True):
        self.script, self.counts_pieces, self.now, self.left = script, counts_pieces, 100.0, False

    def stream(self, ask):
        try:
            for at, what in self.script:
                self.now = max(self.now, 100.0 + at)
                if isinstance(what, Exception):
                    raise what
                yield what
        except GeneratorExit:
            self.left = True
            raise

    def sleep(self, seconds):
        self.now += seconds

    def reports(self, **asked):
        told = []
        ask = Ask(**{"prompt": "p", "tokens": 7, "level": 1, **asked})
        measure.run(self, ask, lambda **one: told.append(one), lambda: self.now, self.sleep)
        return [
            (one["request_type"], one["name"], pytest.approx(one["response_time"]), one["response_length"])
            for one in told
        ], [str(one["exception"]) for one in told if one["exception"]]


ANSWER = (0.25, Piece("a", 1)), (0.5, Piece("b", 2)), (0.6, Piece("", 0)), (1.25, Piece("c", 4)), (1.5, Piece("", 0))


def test_times_and_tokens_of_an_answer():
    reports, errors = Played(*ANSWER).reports()
    assert errors == []
    assert reports == [
        ("played", "request level 1", 1500.0, 7),
        ("figure", "ttft level 1", 250.0, 0),
        ("figure", "inter-token level 1", 125.0, 0),  # 0.25 s for two tokens
        ("figure", "inter-token level 1", 187.5, 0),  # 0.75 s for four; a response without tokens is none
        ("figure", "tokens/s level 1", 6.0, 0),  # six tokens in the second after the first response
    ]


def test_a_level_has_names_of_its_own():
    assert {name[-7:] for _, name, _, _ in Played(*ANSWER).reports(level=3)[0]} == {"level 3"}


def test_one_that_leaves_closes_the_stream_and_is_no_answer():
    door = Played(*ANSWER)
    reports, errors = door.reports(leaves_after=2)
    assert door.left
    assert errors == []
    assert reports[0] == ("played", "abandoned level 1", 500.0, 3)
    assert reports[1] == ("figure", "ttft level 1", 250.0, 0)


def test_one_that_would_leave_after_the_end_is_an_answer():
    assert Played(*ANSWER).reports(leaves_after=9)[0][0] == ("played", "request level 1", 1500.0, 7)


def test_a_slow_readers_pauses_are_not_the_servers():
    reports, _ = Played(*ANSWER).reports(read_seconds=2.0)
    assert reports == [("played", "request level 1", 10250.0, 7), ("figure", "ttft level 1", 250.0, 0)]


def test_a_door_that_does_not_count_pieces_has_tokens_and_first_but_no_gaps():
    door = Played((0.25, Piece("a", 0)), (0.5, Piece("b", 0)), (0.75, Piece("", 7)), counts_pieces=False)
    assert door.reports()[0] == [("played", "request level 1", 750.0, 7), ("figure", "ttft level 1", 250.0, 0)]


def test_an_error_is_a_failure_with_the_servers_words_and_the_tokens_before_it():
    reports, errors = Played((0.25, Piece("a", 3)), (0.5, DoorError("pool too small"))).reports()
    assert reports == [("played", "request level 1", 500.0, 3), ("figure", "ttft level 1", 250.0, 0)]
    assert errors == ["pool too small"]


@pytest.mark.parametrize("tokens", [6, 8])
def test_an_answer_of_another_length_than_asked_for_is_a_failure(tokens):
    _, errors = Played((0.25, Piece("a", tokens))).reports()
    assert errors == ["an answer of 7 tokens was asked for, but another number came"]
