"""The server that is soaked: scripts/serve.py as a process, where possible with a small /dev/shm of its own."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from loadtests.asks import Ask
from loadtests.doors.base import Door
from loadtests.doors.grpc_door import GrpcDoor
from loadtests.doors.http_door import HttpDoor
from scripts.launcher import leftovers
from scripts.launcher.from_outside import mark_of
from scripts.launcher.hints import READY_LINE

from .settings import SERVER_OPTIONS, SHARED_MEMORY_MIB

SERVE = Path(__file__).resolve().parents[1] / "serve.py"
# Of a mount namespace, so that nobody else's /dev/shm is touched; `exec` keeps the process id.
SMALL = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size="$0"m tmpfs /dev/shm && exec "$@"')
START_SECONDS, END_SECONDS, PROBE_SECONDS = 180.0, 40.0, 20.0
POLL_SECONDS = 0.02
PROBE = Ask(prompt="The capital of France is", tokens=2, level=1)


def may_bound_shared_memory() -> bool:
    """Whether this process may give a server a /dev/shm of its own."""
    try:
        return subprocess.run([*SMALL, "1", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class Subject:
    """One launcher and the servers that it starts one after another. `log`: where what they say goes."""

    def __init__(self, model: str, log: Path, *, bounded: bool) -> None:
        """bounded: with a /dev/shm of SHARED_MEMORY_MIB."""
        self.bounded = bounded
        self.marks: list[str] = []
        self.answered_probes = 0
        self.host, self.http_port, self.grpc_port, self.metrics_port = "", 0, 0, 0
        self._log = log
        self._said = log.with_suffix(".out")
        self._line = [*((*SMALL, str(SHARED_MEMORY_MIB)) if bounded else ()), sys.executable, str(SERVE)]
        self._line += ["--model", model, *SERVER_OPTIONS]

    def start(self) -> None:
        """Until it is ready. Raises OSError with the last line of the log if that does not come about."""
        with self._said.open("wb") as out, self._log.open("wb") as err:
            self.launcher = subprocess.Popen(self._line, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        deadline = time.monotonic() + START_SECONDS
        while not (found := READY_LINE.search(self._said.read_text())):
            if self.launcher.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise OSError(f"the server did not start: {self.last_line()}")
            time.sleep(POLL_SECONDS)
        self.host = found["host"]
        self.http_port, self.grpc_port, self.metrics_port = (int(found[name]) for name in ("http", "grpc", "metrics"))

    @property
    def grpc_url(self) -> str:
        """host:port."""
        return f"{self.host}:{self.grpc_port}"

    @property
    def http_url(self) -> str:
        """Without a slash at its end."""
        return f"http://{self.host}:{self.http_port}"

    @property
    def shared_memory(self) -> Path:
        """The server's /dev/shm, as seen from here."""
        return Path(f"/proc/{self.launcher.pid}/root/dev/shm")

    def mark(self, other_than: str = "") -> str:
        """The mark of the server that runs now. Raises TimeoutError when there is none for too long."""
        mark = mark_of(self.launcher.pid, seconds=60, other_than=other_than)
        if mark not in self.marks:
            self.marks.append(mark)
        return mark

    def ready(self) -> bool:
        """Whether the server says so."""
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=2)
        try:
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def probe(self) -> str:
        """What both doors say to one prompt, empty if one of them does not answer in time or they differ."""
        grpc_door = GrpcDoor(self.grpc_url)
        try:
            answers = [_within(PROBE_SECONDS, lambda d=door: _text(d)) for door in (grpc_door, HttpDoor(self.http_url))]
        finally:
            grpc_door.close()
        self.answered_probes += sum(map(bool, answers))
        return answers[0] if answers[0] == answers[1] else ""

    def last_line(self) -> str:
        """Of what it said to standard error."""
        return next(reversed(self._log.read_text(errors="replace").splitlines()), "it said nothing")

    def stop(self) -> int | None:
        """End it as a container is ended; its exit code, None if it had to be killed."""
        if self.launcher.poll() is None:
            self.launcher.send_signal(signal.SIGTERM)
        try:
            return self.launcher.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.launcher.kill()
            self.launcher.wait()
            return None

    def left_behind(self) -> list[str]:
        """What is still there of servers that have ended. Before the launcher ends, the one that runs is left out."""
        running = self.launcher.poll() is None
        found = []
        for mark in self.marks[: -1 if running else None]:
            found += [f"process {pid}" for pid in leftovers.marked_processes(mark)]
            found += [f"{path}" for path in Path("/tmp").glob(f"{mark}*")]
            shared = self.shared_memory if running else leftovers.SHARED_MEMORY
            found += [f"{path}" for path in shared.glob(f"{mark}*")]
        return found


def _text(door: Door) -> str:
    return "".join(piece.text for piece in door.stream(PROBE))


def _within(seconds: float, call: Callable[[], str]) -> str:
    answers: list[str] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception:  # of whatever kind: it is no answer
            answers.append("")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else ""
