"""Everything that one server can leave behind, found by its mark, and the watchdog that removes it.

A mark is a string that no other server has. Each process of the server carries it in its environment (the stubs
and whatever they start inherit it), and the server's shared memory regions begin with it. So what belongs to a
server is found without a pid file, even when its parents are gone.

Run as a program, this file is the watchdog: it waits until the launcher that holds the other end of its standard
input is gone, however it went, and then removes what is left. It uses the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

MARK_VARIABLE = "INFLIGHT_BATCHER_SERVER"
SHARED_MEMORY = Path("/dev/shm")
POLL_SECONDS = 0.05
KILL_SECONDS = 3.0


def _never() -> bool:
    return False


def marked_processes(mark: str) -> list[int]:
    """Process ids of this user's live processes that carry `mark`; zombies are not among them."""
    needle = f"{MARK_VARIABLE}={mark}".encode()
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and needle in _environment(entry)]


def mark_in(pid: str) -> str:
    """The mark that a process carries; empty when it carries none, or is gone."""
    prefix = f"{MARK_VARIABLE}=".encode()
    return next((line.removeprefix(prefix).decode() for line in _environment(pid) if line.startswith(prefix)), "")


def _environment(pid: str) -> list[bytes]:
    try:
        return Path("/proc", pid, "environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or gone since the listing
        return []


def roots(pids: list[int]) -> list[int]:
    """Those whose parent is not among `pids`: the server while it lives, afterwards the orphaned stubs."""
    return [pid for pid in pids if parent_of(pid) not in pids]


def parent_of(pid: int) -> int | None:
    """The parent's process id; None when `pid` is gone."""
    try:
        # The command name, in parentheses, may hold spaces and parentheses itself.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def send(mark: str, pid: int, number: int) -> None:
    """Send a signal; the descriptor is taken before the mark is read again, so a reused pid is never hit."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            if f"{MARK_VARIABLE}={mark}".encode() in _environment(str(pid)):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def end_processes(mark: str, grace: float, hurry: Callable[[], bool] = _never) -> bool:
    """Ask the server to end, wait up to `grace` seconds or until `hurry()`, then kill; True when none is left.

    Only the root is asked: it tells its stubs. Stubs that outlive it are killed with the rest.
    """
    ask_to_end(mark)
    return gone(mark, grace, hurry) or kill(mark)


def ask_to_end(mark: str) -> None:
    """Send SIGTERM to the server, or to its stubs if it is gone."""
    for pid in roots(marked_processes(mark)):
        send(mark, pid, signal.SIGTERM)


def kill(mark: str) -> bool:
    """Send SIGKILL to all of them until none is left; True when that has come about."""
    deadline = time.monotonic() + KILL_SECONDS
    while (pids := marked_processes(mark)) and time.monotonic() < deadline:
        for pid in pids:
            send(mark, pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    return not pids


def gone(mark: str, seconds: float, hurry: Callable[[], bool] = _never) -> bool:
    """Wait until none is left; False after so many seconds, or when `hurry()` turns true."""
    deadline = time.monotonic() + seconds
    while marked_processes(mark):
        if time.monotonic() >= deadline or hurry():
            return False
        time.sleep(POLL_SECONDS)
    return True


def shared_memory(mark: str) -> list[Path]:
    """The server's shared memory regions."""
    return sorted(SHARED_MEMORY.glob(f"{mark}*"))


def remove_files(mark: str, workspace: Path) -> None:
    """Remove the server's shared memory regions and its workspace; a missing one is no error."""
    for region in shared_memory(mark):
        region.unlink(missing_ok=True)
    shutil.rmtree(workspace, ignore_errors=True)


def _watch(mark: str, workspace: Path, grace: float) -> None:
    # Ctrl-C and a closed terminal reach the launcher, which then ends the server itself.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_processes(mark, grace)
    remove_files(mark, workspace)


if __name__ == "__main__":
    _watch(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
