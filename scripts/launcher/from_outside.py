"""A running launcher's server as another process sees it: for scripts/soak and tests, which do harm to its parts."""

from __future__ import annotations

import time
from pathlib import Path

from . import leftovers

POLL_SECONDS = 0.02


def mark_of(launcher: int, seconds: float = 20.0, *, other_than: str = "") -> str:
    """The mark of the server that the launcher with this process id runs; waits so long for one.

    other_than: the mark of a server before it. Raises TimeoutError.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for child in _children(launcher):
            if (mark := leftovers.mark_in(child)) and mark != other_than:
                return mark
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"process {launcher} has started no server in {seconds:.0f} s")


def server_of(mark: str) -> int:
    """Process id of the server itself. Raises ProcessLookupError when it is gone."""
    return _only(leftovers.roots(leftovers.marked_processes(mark)), "server")


def stub_of(mark: str, model: str) -> int:
    """Process id of the one stub that holds this model. Raises ProcessLookupError when it is gone."""
    return _only(stubs_of(mark, model), f"stub of {model}")


def stubs_of(mark: str, model: str) -> list[int]:
    """Process ids of the stubs that hold this model, one per instance. Raises ProcessLookupError without a server."""
    # A process that a model forks has the stub's command line, too.
    server, place = server_of(mark), f"/{model}/1/model.py".encode()
    pids = leftovers.marked_processes(mark)
    return [pid for pid in pids if leftovers.parent_of(pid) == server and place in _command(pid)]


def _only(found: list[int], what: str) -> int:
    if len(found) != 1:
        raise ProcessLookupError(f"{len(found)} processes are the {what}")
    return found[0]


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
