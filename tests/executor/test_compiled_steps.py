"""Whole steps of the GPU executor in bfloat16, compiled for a GPU, in a process that does not interpret kernels."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def compiled(*arguments: str) -> tuple[int, int]:
    """Kernels compiled at load, and by steps after it."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.executor.compiled_steps", *arguments]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    load, later = re.findall(r"compiled (?:at load|later): (\d+):", run.stdout)
    return int(load), int(later)


def test_after_the_warm_up_no_step_compiles_anything() -> None:
    load, later = compiled()
    assert load >= 9  # one of each kernel at the least
    assert later == 0


@pytest.mark.nightly
def test_without_the_warm_up_steps_do() -> None:
    """The detector sees what it should."""
    assert compiled("--cold")[1] > 0
