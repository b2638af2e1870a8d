"""What finds a bad outcome fires on each, and on no good one."""

from __future__ import annotations

import threading

import pytest

from tests.fuzz.cases import Case
from tests.fuzz.judge import problems_of, problems_of_error
from tests.fuzz.sending import Bounds, Outcome

CASE = Case(model="ensemble", door="grpc", sound=True)
HTTP = Case(model="ensemble", door="generate", sound=True)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens: 0 is out of range, allowed is [1, 2147483648]",
        "input_lengths: 4, but input_ids holds 3",
        "unexpected inference input 'x' for model 'ensemble'",
        "guided_decoding_guide: not a valid guide of type json_schema: #/properties/a is no schema and/or not there",
        "sampling_parameters: is not valid JSON",
        "guided_decoding_guide: not a valid guide of type json_schema: EOF while parsing an object at line 1 column 1",
    ],
)
def test_a_clear_line_is_no_problem(message: str) -> None:
    assert problems_of_error(message) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("Traceback (most recent call last)", "a stack"),
        ('  File "model.py", line 3, in execute', "a stack"),
        ("cannot open /home/user/models/config.json", "a path"),
        ("failed in backend/serving/inputs.py", "a path"),
        ("<Tensor at 0x7f12ab34cd>", "an address"),
        ("failed to open shared memory region", "a memory key"),
        ("ValueError: 5 is wrong", "a Python name"),
        ("got <class 'int'>", "a Python name"),
        ("<sampling.Params object at 0x7f12>", "a Python name"),
        ("'NoneType' is not iterable", "a Python name"),
        ("the request could not be taken in", "no reason"),
        (" ", "without words"),
        ("one\ntwo", "several lines"),
        ("a bell \x07", "cannot be shown"),
        ("x" * 1001, "1001 characters"),
        (None, "no text"),
    ],
)
def test_each_thing_that_an_error_must_not_hold_is_found(message: object, problem: str) -> None:
    assert any(problem in found for found in problems_of_error(message))


def test_a_whole_answer_a_refusal_and_a_client_that_left_are_no_problem() -> None:
    assert problems_of(CASE, Outcome(texts=[b"a"], reasons=["", "length"], responses=2, finals=1)) == []
    assert problems_of(CASE, Outcome(errors=["max_tokens: is required"])) == []
    assert problems_of(CASE, Outcome(left=True)) == []
    assert problems_of(HTTP, Outcome(texts=[b"a"], responses=1, status=200)) == []


@pytest.mark.parametrize(
    ("case", "outcome", "problem"),
    [
        (CASE, Outcome(late=True), "no end within the bound"),
        (CASE, Outcome(responses=1), "0 final markers"),
        (CASE, Outcome(responses=2, finals=2), "2 final markers"),
        (CASE, Outcome(finals=1, after_final=1), "1 responses after the final one"),
        (CASE, Outcome(errors=["a", "b"]), "2 errors"),
        (CASE, Outcome(finals=1, texts=[b"\xff"]), "no UTF-8"),
        (CASE, Outcome(finals=1, reasons=["done"]), "finish_reason 'done'"),
        (HTTP, Outcome(broken="no JSON: b'x'"), "no JSON"),
    ],
)
def test_each_bad_outcome_is_found(case: Case, outcome: Outcome, problem: str) -> None:
    assert any(problem in found for found in problems_of(case, outcome))


def test_a_request_that_takes_too_long_is_ended_and_called_late() -> None:
    bounds, outcome, ended = Bounds(0.3), Outcome(), threading.Event()
    with bounds.around(outcome, ended.set):
        assert ended.wait(30)
    assert outcome.late
    quick = Outcome()
    with bounds.around(quick, ended.clear):
        pass
    bounds.close()
    assert not quick.late
    assert ended.is_set()
