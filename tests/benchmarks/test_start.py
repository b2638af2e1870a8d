"""`scripts/bench start` on a real server with a model of a few lines."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.tiny_models import add_model

pytestmark = [pytest.mark.server, pytest.mark.nightly]
BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench.py"


def measured(*options: str, rounds: int = 1) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH), "start", "--rounds", str(rounds), "--", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_each_start_is_timed_and_its_memory_is_that_of_all_processes(tmp_path: Path) -> None:
    line = json.loads(measured("--model-repository", str(add_model(tmp_path, "echo")), rounds=2).stdout)
    assert (line["bench"], len(line["each_s"]), len(line["each_mb"])) == ("start", 2, 2)
    assert line["ready_s"] == pytest.approx(statistics.mean(line["each_s"]), abs=0.01)
    # The launcher, the server and one stub: Python with numpy thrice, no torch.
    assert all(30 < megabytes < 400 for megabytes in line["each_mb"])


def test_a_server_that_does_not_start_is_an_error_in_one_line(tmp_path: Path) -> None:
    done = measured("--model-repository", str(tmp_path / "none"))
    assert done.returncode != 0
    assert done.stdout == ""
    assert "scripts/serve ended before it was ready" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
