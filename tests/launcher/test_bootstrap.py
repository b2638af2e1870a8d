"""scripts/_bootstrap.sh with a Python that only notes what it is asked to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

BOOTSTRAP = Path(__file__).resolve().parents[2] / "scripts" / "_bootstrap.sh"

FAKE_PYTHON = """#!/usr/bin/env bash
echo "$*" >>"$CALLS"
case "$*" in
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python3" ;;
    *"pip install"*) sleep "${PIP_SECONDS:-0}"; exit "${PIP_STATUS:-0}" ;;
    *compileall*) exit 1 ;;  # as it ends where a package holds a file for another Python
esac
"""


class Checkout:
    """A directory with just what the bootstrap reads."""

    def __init__(self, root: Path) -> None:
        self.root, self.calls = root / "checkout", root / "calls"
        (self.root / "scripts").mkdir(parents=True)
        shutil.copy(BOOTSTRAP, self.root / "scripts")
        (self.root / "pyproject.toml").write_text("[project]")
        (self.root / "constraints.txt").write_text("a==1")
        (root / "bin").mkdir()
        (root / "bin" / "python3.11").write_text(FAKE_PYTHON)
        (root / "bin" / "python3.11").chmod(0o755)
        self.environment = os.environ | {"PATH": f"{root / 'bin'}:{os.environ['PATH']}", "CALLS": str(self.calls)}

    def start(self, extras="client", **environment):
        """Begin a bootstrap in a process group of its own."""
        # As scripts/serve does: whatever fails unseen ends it.
        code = f'set -euo pipefail; source "{self.root}/scripts/_bootstrap.sh"; bootstrap {extras}; echo "$PYTHON"'
        return subprocess.Popen(
            ["bash", "-c", code],
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments, **environment):
        """Exit code and standard error of a bootstrap."""
        process = self.start(*arguments, **environment)
        _, err = process.communicate(timeout=20)
        return process.returncode, err

    def count(self, call):
        """How often Python was called with these words."""
        return self.calls.read_text().count(call) if self.calls.exists() else 0


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_the_first_start_installs_and_the_next_does_nothing(checkout):
    code, err = checkout.run()
    assert code == 0
    assert "installing this project with [client]" in err
    assert checkout.count("compileall") == 1
    calls = checkout.calls.read_text()
    began = time.monotonic()
    assert checkout.run() == (0, "")
    assert time.monotonic() - began < 0.2
    assert checkout.calls.read_text() == calls


def test_changed_pins_or_other_extras_install_again_into_the_same_environment(checkout):
    checkout.run()
    (checkout.root / "constraints.txt").write_text("a==2")
    checkout.run()
    checkout.run("client,dev")
    assert (checkout.count("pip install"), checkout.count("-m venv")) == (3, 1)


def test_an_interrupted_installation_is_made_anew(checkout):
    interrupted = checkout.start(PIP_SECONDS="30")
    while not checkout.count("pip install"):
        time.sleep(0.02)
    os.killpg(interrupted.pid, signal.SIGKILL)
    interrupted.communicate()
    code, err = checkout.run()
    assert code == 0
    assert "was interrupted; starting afresh" in err
    assert (checkout.count("pip install"), checkout.count("-m venv")) == (2, 2)


def test_a_failed_pip_is_reported_and_does_not_cost_the_environment(checkout):
    code, err = checkout.run(PIP_STATUS="1")
    assert code != 0
    assert "pip failed" in err
    assert checkout.run()[0] == 0
    assert (checkout.count("pip install"), checkout.count("-m venv")) == (2, 1)


def test_of_two_at_once_one_installs_and_the_other_waits(checkout):
    both = [checkout.start(PIP_SECONDS="1") for _ in range(2)]
    errors = [process.communicate(timeout=20)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("waiting for another installation" in err for err in errors) == 1
    assert checkout.count("pip install") == 1
