"""A real server for tests: scripts/serve.py as a process of its own, on free ports.

    with RunningServer.start("smollm2", device="cpu", max_batch_size=4) as server:
        requests to server.http_url, server.grpc_url, server.metrics_url

Options are those of scripts/serve with underscores; `parameter` takes a dict. A fixture is one line:
`yield from RunningServer.fixture(...)`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.launcher.hints import READY_LINE

STARTED_AGAIN = "starting the server again"  # says the launcher
SERVE = Path(__file__).resolve().parents[1] / "scripts" / "serve.py"


class ServerStartError(AssertionError):
    """The server did not become ready; the message holds its log."""


class RunningServer:
    """A server that is ready. `start` makes one; leaving its `with` block ends it."""

    def __init__(self, process: subprocess.Popen[bytes], directory: tempfile.TemporaryDirectory[str]) -> None:
        self.process = process
        self._directory = directory
        self._log: str | None = None
        self.host, self.http_port, self.grpc_port, self.metrics_port = "127.0.0.1", 0, 0, 0

    @classmethod
    def start(
        cls,
        model: str | Path | None = None,
        *,
        ready_timeout: float = 180.0,
        within: Sequence[str] = (),
        **options: Any,
    ) -> RunningServer:
        """Start a server and wait until it serves; raises ServerStartError with the log otherwise.

        `model` is serve's --model. Ports are free ones unless options name them. within: a command that is given the
        launcher's as its arguments and becomes it.
        """
        server = cls(*_spawn([*within, *command_line(model, **options)]))
        try:
            server._wait_ready(ready_timeout)
        except BaseException:
            server.stop()
            raise
        return server

    @classmethod
    def fixture(cls, model: str | Path | None = None, **options: Any) -> Iterator[RunningServer]:
        """The body of a pytest fixture."""
        with cls.start(model, **options) as server:
            yield server

    @property
    def http_url(self) -> str:
        """Base address of the HTTP service, without a slash at its end."""
        return f"http://{self.host}:{self.http_port}"

    @property
    def grpc_url(self) -> str:
        """host:port of the gRPC service, as tritonclient wants it."""
        return f"{self.host}:{self.grpc_port}"

    @property
    def metrics_url(self) -> str:
        """Address of the Prometheus page."""
        return f"http://{self.host}:{self.metrics_port}/metrics"

    def announcement(self) -> str:
        """What the launcher printed when the server was ready."""
        return self._read("stdout")

    def log(self) -> str:
        """What the launcher, the server and the models wrote to standard error so far; stays after `stop`."""
        return self._read("stderr") if self._log is None else self._log

    def stop(self, number: int = signal.SIGINT, timeout: float = 20.0) -> int:
        """End the server by a signal and return the launcher's exit code; may be called again.

        The log of a server that ended before, or was started again, is printed: a test that failed for it shows it.
        """
        ended = self.process.poll() is not None
        if not ended:
            self.process.send_signal(number)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()  # its watchdog then ends the rest
            code = self.process.wait()
        if self._log is None:
            self._log = self._read("stderr")
            self._directory.cleanup()
            if ended or STARTED_AGAIN in self._log:
                print(self._log, file=sys.stderr)
        return code

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_ready(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not (found := READY_LINE.search(self._read("stdout"))):
            if self.process.poll() is not None:
                raise ServerStartError(f"serve ended with code {self.process.returncode}:\n{self.log()}")
            if time.monotonic() > deadline:
                raise ServerStartError(f"not ready after {seconds:.0f} s:\n{self.log()}")
            time.sleep(0.05)
        self.host = found["host"]
        self.http_port, self.grpc_port, self.metrics_port = (int(found[name]) for name in ("http", "grpc", "metrics"))

    def _read(self, stream: str) -> str:
        return Path(self._directory.name, stream).read_text(errors="replace")


def command_line(model: str | Path | None = None, **options: Any) -> list[str]:
    """The command that starts scripts/serve.py with these options and free ports."""
    options = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, **options}
    parameters = options.pop("parameter", {})
    line = [sys.executable, str(SERVE), *(["--model", str(model)] if model is not None else [])]
    for name, value in options.items():
        if value is True:
            line.append(f"--{name.replace('_', '-')}")
            continue
        line += [f"--{name.replace('_', '-')}", str(value)]
    for key, value in parameters.items():
        line += ["--parameter", f"{key}={value}"]
    return line


def _spawn(line: list[str]) -> tuple[subprocess.Popen[bytes], tempfile.TemporaryDirectory[str]]:
    directory = tempfile.TemporaryDirectory(prefix="running-server-")
    with Path(directory.name, "stdout").open("wb") as out, Path(directory.name, "stderr").open("wb") as err:
        return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out, stderr=err), directory
