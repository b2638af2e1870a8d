from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time

import pytest

from scripts.launcher import leftovers

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture
def mark():
    return f"ifb-test-{secrets.token_hex(6)}-"


def _start(mark, code):
    environment = os.environ | {leftovers.MARK_VARIABLE: mark}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


def test_a_process_that_ignores_sigterm_and_its_child_in_another_session_are_killed(mark):
    with _start(mark, STUBBORN):
        assert len(leftovers.marked_processes(mark)) == 2
        assert leftovers.end_processes(mark, grace=0.2)
        assert leftovers.marked_processes(mark) == []


def test_hurry_cuts_the_wait_short(mark):
    with _start(mark, STUBBORN):
        began = time.monotonic()
        assert leftovers.end_processes(mark, grace=30, hurry=lambda: True)
        assert time.monotonic() - began < 5


def test_processes_of_another_mark_are_left_alone(mark):
    with _start(mark, "import time; print(); time.sleep(60)") as other:
        assert leftovers.end_processes(mark[:-1], grace=0)
        assert other.poll() is None
        other.kill()


def test_files_are_removed(mark, tmp_path):
    region = leftovers.SHARED_MEMORY / f"{mark}1"
    region.touch()
    (tmp_path / "workspace" / "models").mkdir(parents=True)
    leftovers.remove_files(mark, tmp_path / "workspace")
    assert not region.exists()
    assert not (tmp_path / "workspace").exists()
    leftovers.remove_files(mark, tmp_path / "workspace")
