"""One server's life: rendered, started, ready, ended, with nothing left behind."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import TracebackType

from . import command, drain, leftovers, ports, repository, server_binary
from .errors import LaunchError
from .pulse import Pulse
from .scheduling import without_wake_up_preemption
from .server_log import ServerLog
from .stubs import StubWatch

LOOK_SECONDS = 1.0
"""How often new processes are looked for where models may be loaded later."""
ENGINE = "inflight_batcher"
POLL_SECONDS = 0.05
GRACE_READY = 4.0
"""Seconds that open requests get to finish at Ctrl-C, and then the server to end; in all that is under ten."""
GRACE_TOLD = 1.0
"""Seconds for the rest to be told that it is over."""
GRACE_LOADING = 0.5
"""The server reads no signal while it loads models, so waiting longer gains nothing."""
GRACE_FAILED = 3.0
"""After a failed load the server ends by itself if no other model is still loading; with a dead stub it hangs."""
GRACE_STUCK = 0.5
"""Beside a stub that stands still the server never ends, and until it is killed says that it is ready."""


def _never() -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What one server serves and where; `threads` 0 means all cores, a port 0 any free one.

    beside: further repositories, served as they are. grace: seconds that open requests get to finish when a supervisor
    ends the server. model_control: whether models can be unloaded and loaded through the server's API. otlp_endpoint:
    of the collector that gets the spans of one of ``trace_every`` requests, "" for none.
    """

    source: Path
    beside: tuple[Path, ...] = ()
    parameters: repository.Parameters = field(default_factory=dict)
    max_queue_size: int = 0
    host: str = "127.0.0.1"
    ports: ports.Ports = field(default_factory=ports.Ports)
    log_level: str = "warning"
    threads: int = 0
    grace: float = 25.0
    model_control: bool = False
    otlp_endpoint: str = ""
    trace_every: int = 1


class Server:
    """A context manager: entering starts the processes, leaving ends them. `wait_ready` comes between.

    Raises LaunchError from entering (a port in use, no binary, a bad repository) and from `wait_ready`
    (a model that failed to load).
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.mark = f"ifb-{secrets.token_hex(6)}-"
        self.ports = options.ports
        self.models: list[str] = []
        self._control = (command.CONTROL_HEADER, secrets.token_hex(16))
        self._drain: drain.Drain | None = None
        self._pulse: Pulse | None = None
        self._grace = GRACE_LOADING
        self._ending = contextlib.ExitStack()

    def __enter__(self) -> Server:
        with contextlib.ExitStack() as undo:
            self._start(undo)
            self._ending = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self, hurry: Callable[[], bool] = _never, patient: bool = False) -> bool:
        """End every process and remove every file of the server; `hurry()` turning true cuts the wait short.

        A server that serves this project's engine is drained first: it is not ready and refuses new requests, and open
        ones may finish, with `patient` for the grace of the options. Those that have not get an error.

        Returns True when no process is left. Calling it again does nothing.
        """
        if self._drain is not None and self._grace == GRACE_READY and self._answers(f"models/{ENGINE}"):
            drain.make_not_ready(self._repository, self.local_host, self.ports.http, self._control)
            self._drain.run(self.options.grace if patient else GRACE_READY, GRACE_TOLD, hurry)
        self._drain = None
        gone = leftovers.end_processes(self.mark, self._grace, hurry)
        self._ending.close()
        return gone

    def check(self) -> None:
        """Raise LaunchError when a server that was ready or a model's process has died, or the engine's stands still.

        The error's exit code is the server's, 128 + n for signal n.
        """
        status = self._process.poll()
        if status is not None:
            code = status if status > 0 else 128 - status if status else 1
            raise LaunchError(f"the server ended unexpectedly ({_describe(status)})", code)
        if dead := self._died():
            self._grace = GRACE_FAILED
            raise LaunchError(f"{', '.join(dead)}: the model's process died (often for want of memory)")
        if self._pulse and (silence := self._pulse.lost()):
            self._grace = GRACE_STUCK
            raise LaunchError(f"{ENGINE}: the model's process has stood still for {silence:.0f} s (stuck_seconds)")
        if self.options.model_control and time.monotonic() > self._look_again:
            self._look()

    def _died(self) -> list[str]:
        """Models whose process has died though they were not unloaded."""
        dead = self._stubs.dead()
        if not dead or not self.options.model_control:
            return dead
        # Whether a model was unloaded the server knows. One that was loaded again has other processes, all of them
        # there once it is ready: so the server is asked first.
        ready = [model for model in dead if self._answers(f"models/{model}")]
        self._look()
        self._stubs.forget_dead(dead)
        alive = self._stubs.alive()
        return [model for model in ready if alive[model] < self._instances(model)]

    def _instances(self, model: str) -> int:
        """How many processes a model is to have; 0 where the server does not say."""
        status, body = self._get(f"models/{model}/config")
        if status != HTTPStatus.OK:
            return 0
        return sum(group.get("count", 1) for group in json.loads(body).get("instance_group", [{}]))

    def _look(self) -> None:
        self._stubs.look(leftovers.marked_processes(self.mark))
        self._look_again = time.monotonic() + LOOK_SECONDS

    def wait_ready(self, stop: Callable[[], bool] = _never) -> bool:
        """Wait until every model serves; False when `stop()` turned true first. Raises LaunchError."""
        while not self._answers_ready():
            if self._log.load_failure or self._process.poll() is not None:
                self._grace = GRACE_FAILED
                raise LaunchError(self._failure())
            if stop():
                return False
            time.sleep(POLL_SECONDS)
        self._grace = GRACE_READY
        self._stubs = StubWatch(self._process.pid, self._repositories)
        self._ending.callback(self._stubs.close)
        self._look()
        self._log.release()
        return True

    def _start(self, undo: contextlib.ExitStack) -> None:
        options = self.options
        address = ports.resolve(options.host)
        self.ports = ports.choose(address, options.ports)
        workspace = Path(tempfile.mkdtemp(prefix=self.mark))
        undo.callback(leftovers.remove_files, self.mark, workspace)
        self._repository = workspace / "models"
        self._repositories = (self._repository, *options.beside)
        parameters = options.parameters
        if ENGINE in parameters:
            self._drain = drain.Drain(workspace / "control")
            self._pulse = Pulse(self._drain.directory)
            parameters = repository.with_parameter(parameters, ENGINE, "control_dir", str(self._drain.directory))
        self.models = repository.render(options.source, self._repository, parameters, options.max_queue_size)
        self.models += repository.beside(options.beside, self.models)
        binary = server_binary.find(workspace)
        undo.enter_context(_watchdog(self.mark, workspace))
        flags = command.flags(binary, self._repositories, address, self.ports, options.log_level, self.mark)
        flags += command.restricted(*self._control, model_control=options.model_control)
        flags += command.tracing(options.otlp_endpoint, options.trace_every) if options.otlp_endpoint else []
        threads = options.threads or command.available_cores()
        self._process = _spawn(flags, command.environment(binary, threads, self.mark))
        undo.callback(self._process.wait)
        undo.callback(leftovers.end_processes, self.mark, 0.0)
        assert self._process.stdout is not None
        self._log = ServerLog(self._process.stdout, live=options.log_level in ("info", "verbose"))

    def _answers_ready(self) -> bool:
        return all(self._answers(path) for path in ("health", *(f"models/{model}" for model in self.models)))

    def _answers(self, path: str) -> bool:
        return self._get(f"{path}/ready")[0] == HTTPStatus.OK

    def _get(self, path: str) -> tuple[int, bytes]:
        """Status and body; 0 where there is no answer."""
        # http.client goes past any proxy that the environment names.
        connection = http.client.HTTPConnection(self.local_host, self.ports.http, timeout=2)
        try:
            connection.request("GET", f"/v2/{path}")
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    @property
    def local_host(self) -> str:
        """The address under which a client on this machine reaches the server."""
        address = ports.resolve(self.options.host)
        return "127.0.0.1" if address == "0.0.0.0" else address

    def _failure(self) -> str:
        status = self._process.poll()
        if status is not None:
            self._log.join(2.0)
        return self._log.failure() or f"the server ended while it started ({_describe(status)})"


def _describe(status: int | None) -> str:
    if status is not None and status < 0:
        return f"signal {signal.Signals(-status).name}"
    return f"exit code {status}"


def _spawn(flags: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    # Its own session: a Ctrl-C in the terminal reaches the launcher alone, which then ends the server in order.
    with without_wake_up_preemption():
        return subprocess.Popen(
            flags,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@contextlib.contextmanager
def _watchdog(mark: str, workspace: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process that cleans up if this one is killed; it ends when its standard input is closed."""
    program = [sys.executable, "-I", "-S", leftovers.__file__, mark, str(workspace), str(GRACE_LOADING)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process
