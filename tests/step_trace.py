"""The step trace of a real server: where it is written, what it says, and whether the engine rests.

A line of JSON for each step, by the engine's parameter ``step_trace_file``.
"""

import json
import time
from pathlib import Path
from typing import Any, Literal

import pytest

PATIENCE = 60.0


def trace_file_fixture(scope: Literal["module", "package"]) -> Any:
    """The fixture ``trace_file``, of the scope of the server that writes it: `trace_file = trace_file_fixture(...)`."""

    @pytest.fixture(scope=scope, name="trace_file")
    def make(tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("trace") / "steps.jsonl"

    return make


def steps(trace_file: Path) -> list[dict[str, Any]]:
    """The engine's own record of what each step computed."""
    return [json.loads(line) for line in trace_file.read_text().splitlines()]


def num_steps(trace_file: Path) -> int:
    return len(trace_file.read_text().splitlines())


def wait_until_quiet(trace_file: Path, seconds: float) -> int:
    """Wait until no step has run for a while; the number of steps."""
    end = time.monotonic() + PATIENCE
    known, since = -1, time.monotonic()
    while time.monotonic() < end:
        now = num_steps(trace_file)
        if now != known:
            known, since = now, time.monotonic()
        elif time.monotonic() - since > seconds:
            return known
        time.sleep(0.02)
    raise AssertionError("the engine never came to rest")


def wait_for_steps(trace_file: Path, count: int) -> None:
    end = time.monotonic() + PATIENCE
    while num_steps(trace_file) < count:
        assert time.monotonic() < end, "the engine never began"
        time.sleep(0.01)
