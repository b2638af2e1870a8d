"""The watch over models' processes, on processes that only sleep."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.launcher.stubs import StubWatch


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "echo" / "1"
    place.mkdir(parents=True)
    (place / "model.py").write_text("import time\ntime.sleep(60)\n")
    return tmp_path


@pytest.fixture
def stubs(repository: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes of the model ``echo``."""
    started = [subprocess.Popen([sys.executable, str(repository / "echo" / "1" / "model.py")]) for _ in range(2)]
    # Popen returns as the program is being loaded, when the process has no command line for a moment.
    deadline = time.monotonic() + 10
    while not all(Path(f"/proc/{process.pid}/cmdline").read_bytes() for process in started):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_an_end_is_told_until_it_is_forgotten_though_others_are_looked_for_meanwhile(
    repository: Path, stubs: list[subprocess.Popen[bytes]]
) -> None:
    watch = StubWatch(os.getpid(), [repository])
    watch.look([process.pid for process in stubs])
    assert (watch.dead(), watch.alive()["echo"]) == ([], 2)
    stubs[0].kill()
    stubs[0].wait()
    watch.look([stubs[1].pid])
    assert (watch.dead(), watch.alive()["echo"]) == (["echo"], 1)
    watch.forget_dead(["other"])
    assert watch.dead() == ["echo"]
    watch.forget_dead(["echo"])
    assert (watch.dead(), watch.alive()["echo"]) == ([], 1)
    watch.close()
