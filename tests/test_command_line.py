"""scripts/command_line.py: bounds of numbers, and failures in one line."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from scripts.command_line import exit_status, within


def parser(read: Callable[[str], float]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=read)
    return parser


@pytest.mark.parametrize("text", ["1", "1000"])
def test_bounds_are_within(text: str) -> None:
    value = parser(within(int, 1, 1000)).parse_args(["--number", text]).number
    assert (type(value), value) == (int, int(text))


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (within(int, 1, 1000), "0", "0 is not between 1 and 1000"),
        (within(int, 1, 1000), "1001", "1001 is not between 1 and 1000"),
        (within(int, 1, 1000), "1.5", "invalid int value: '1.5'"),
        (within(float, 1.0, 1440.0), "nan", "nan is not between 1 and 1440"),
        (within(float, 0.0, 120.0, above=True), "0", "0 is not above 0 and at most 120"),
        (within(float, 0.0, 120.0, above=True), "120.5", "120.5 is not above 0 and at most 120"),
    ],
)
def test_what_is_not_within_is_refused_by_option_value_and_limit(
    read: Callable[[str], float], text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser(read).parse_args(["--number", text])
    assert f"argument --number: {said}\n" in capsys.readouterr().err


def ends_with(error: BaseException) -> Callable[[], int]:
    def run() -> int:
        raise error

    return run


def test_a_failure_is_one_line_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(lambda: None, (OSError,)) == 0
    assert exit_status(lambda: 3, (OSError,)) == 3
    assert exit_status(ends_with(KeyboardInterrupt()), (OSError,)) == 130
    assert capsys.readouterr().err == ""
    assert exit_status(ends_with(OSError("no such file")), (ValueError, OSError), failed=2) == 2
    assert capsys.readouterr().err == "error: no such file\n"


def test_an_error_of_another_kind_is_not_hidden() -> None:
    with pytest.raises(KeyError):
        exit_status(ends_with(KeyError("x")), (OSError,))
