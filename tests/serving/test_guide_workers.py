"""Guides are compiled apart from who asks for them, once each, and who leaves meanwhile is not forgotten."""

import threading
import time

import pytest

from backend.errors import InvalidRequest
from backend.guide import Guide
from backend.serving.guide_workers import GuideWorkers
from backend.serving.guided_inputs import GuideText
from backend.serving.response_stream import Failure


class Compiler:
    """Compiles when told to; "bad" is invalid, "broken" breaks it. A guide is its text."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun: list[str] = []
        self.compiled: list[str] = []

    def compile(self, kind: str, text: str) -> Guide:
        self.begun.append(text)
        assert self.go.wait(10)
        self.compiled.append(text)
        if text == "bad":
            raise InvalidRequest("guided_decoding_guide", "is bad")
        if text == "broken":
            raise BaseException("as a panic of the library is none of Exception")
        return text  # type: ignore[return-value]


class Asked:
    """What became of the requests, in order."""

    def __init__(self, compiler: Compiler) -> None:
        self.seen: list[object] = []
        self.workers = GuideWorkers(compiler, lambda number: self.seen.append(("cancel", number)))

    def submit(self, text: str, *numbers: int) -> None:
        self.workers.submit(GuideText("regex", text), numbers, self.seen.append, self.seen.append)

    def wait(self) -> None:
        while self.workers.num_pending:
            time.sleep(0.001)


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
def asked(compiler: Compiler) -> Asked:
    return Asked(compiler)


def test_each_guide_is_compiled_once_and_nobody_waits_for_it(compiler: Compiler, asked: Asked) -> None:
    asked.submit("a", 1, 2)
    assert (asked.seen, asked.workers.num_pending) == ([], 2)
    compiler.go.set()
    asked.wait()
    asked.submit("a", 3)
    assert asked.seen == ["a", "a"]
    asked.workers.close()
    assert compiler.compiled == ["a"]


def test_a_failure_is_told_with_its_code_and_the_next_guide_is_compiled(compiler: Compiler, asked: Asked) -> None:
    compiler.go.set()
    for number, text in enumerate(["bad", "broken", "good"]):
        asked.submit(text, number)
        asked.wait()
    assert asked.seen == [
        Failure("guided_decoding_guide: is bad", "INVALID_ARG"),
        Failure("guided_decoding_guide: could not be compiled", "INTERNAL"),
        "good",
    ]
    asked.workers.close()


def test_a_request_cancelled_meanwhile_is_cancelled_once_the_engine_has_it(compiler: Compiler, asked: Asked) -> None:
    asked.submit("a", 1, 2)
    asked.workers.cancel(2)
    asked.workers.cancel(7)
    assert asked.seen == [("cancel", 7)]
    compiler.go.set()
    asked.workers.close()
    assert asked.seen == [("cancel", 7), "a", ("cancel", 2)]


def test_at_the_end_those_behind_the_guides_under_way_get_an_error(compiler: Compiler, asked: Asked) -> None:
    for number, text in enumerate("abc"):
        asked.submit(text, number)
    while len(compiler.begun) < 2:
        time.sleep(0.001)
    closing = threading.Thread(target=asked.workers.close)
    closing.start()
    while not asked.workers._closing:
        time.sleep(0.001)
    compiler.go.set()
    closing.join(10)
    assert sorted(map(str, asked.seen))[1:] == ["a", "b"]
    assert Failure("the model is being unloaded", "UNAVAILABLE") in asked.seen


def test_only_the_guides_used_lately_are_kept(compiler: Compiler, asked: Asked) -> None:
    compiler.go.set()
    for number in range(40):
        asked.submit(f"g{number}", number)
        asked.wait()
    asked.submit("g8", 40)  # used again, so that it outlives g9
    asked.submit("new", 41)
    asked.wait()
    asked.submit("g8", 42)
    asked.submit("g9", 43)
    asked.wait()
    asked.workers.close()
    assert compiler.compiled == [*(f"g{number}" for number in range(40)), "new", "g9"]
