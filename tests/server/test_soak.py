"""The soak's short form, whole: scripts/soak against a server of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.soaking.disturbances import HARSH
from scripts.soaking.subject import may_bound_shared_memory
from scripts.soaking.traffic import KINDS

pytestmark = [pytest.mark.server, pytest.mark.nightly]
SOAK = Path(__file__).resolve().parents[2] / "scripts" / "soak.py"


def test_three_minutes_of_chaos_leave_no_request_unexplained_and_nothing_behind(
    smollm2_dir: Path, tmp_path: Path
) -> None:
    line = [
        sys.executable,
        str(SOAK),
        "--minutes",
        "3",
        "--model",
        str(smollm2_dir),
        "--json",
        str(tmp_path / "report"),
    ]
    done = subprocess.run([*line, "--log", str(tmp_path / "log")], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "report").read_text())
    assert found["passed"]
    assert "FAIL" not in done.stdout
    assert {outcome.split(", ")[0] for outcome in found["outcomes"]} == set(KINDS)
    assert found["levels"].keys() == {"level 1", "level 2", "level 3"}
    expected = {what.name for what in HARSH if may_bound_shared_memory() or what.name != "shared memory full"}
    assert {each["name"] for each in found["disturbances"]} == expected
    assert sum(each["requests_broken"] for each in found["disturbances"]) > 0
