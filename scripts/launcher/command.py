"""Triton Server's command line and environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import LaunchError
from .leftovers import MARK_VARIABLE
from .ports import Ports
from .server_binary import ServerBinary

EXIT_TIMEOUT_SECONDS = 3
"""How long the server waits for running requests once it is told to end; they have been drained before."""
CONTROL_HEADER = "launcher"
PRIVATE_APIS = ("shared-memory", "trace", "logging")
"""Of Triton Server's, by the names that its flags have for them."""
LOG_LEVELS = ("error", "warning", "info", "verbose")


def flags(
    binary: ServerBinary, repositories: Sequence[Path], address: str, ports: Ports, level: str, mark: str
) -> list[str]:
    """The whole command line; `mark` names the server's shared memory regions.

    Models are controlled through the server's API, which the launcher itself needs to make the server not ready.
    """
    return [
        str(binary.executable),
        *(f"--model-repository={repository}" for repository in repositories),
        f"--backend-directory={binary.backends}",
        f"--backend-config=python,shm-region-prefix-name={mark}",
        "--disable-auto-complete-config",
        "--model-control-mode=explicit",
        "--load-model=*",
        "--strict-readiness=true",
        "--exit-on-error=true",
        f"--exit-timeout-secs={EXIT_TIMEOUT_SECONDS}",
        *(f"--{service}-address={address}" for service in Ports._fields),
        *(f"--{service}-port={port}" for service, port in ports._asdict().items()),
        f"--allow-gpu-metrics={_boolean(_has_nvidia_gpu())}",
        *_log_flags(level),
    ]


def restricted(header: str, secret: str, *, model_control: bool) -> list[str]:
    """Flags that keep what no client of a language model needs from who does not send this header with this value.

    Registering shared memory is among it: the Python backend's own regions, through which a stub gets its requests,
    could be registered by their names, too. model_control: whether loading and unloading is everybody's.
    """
    apis = [*PRIVATE_APIS, *([] if model_control else ["model-repository"])]
    rule = f"{','.join(apis)}:{header}={secret}"
    return [f"--http-restricted-api={rule}", f"--grpc-restricted-protocol={rule}"]


def tracing(endpoint: str, every: int) -> list[str]:
    """Flags that make the server trace one of so many requests by OpenTelemetry, and pass the context on to models.

    Raises LaunchError if the endpoint is none.
    """
    from backend.serving.tracing.export import traces_url  # the engine sends its spans to the same place

    try:
        url = traces_url(endpoint)
    except ValueError as error:
        raise LaunchError(str(error)) from error
    settings = ["mode=opentelemetry", "level=TIMESTAMPS", f"rate={every}", f"opentelemetry,url={url}"]
    return [word for setting in settings for word in ("--trace-config", setting)]


def _log_flags(level: str) -> list[str]:
    rank = LOG_LEVELS.index(level)
    return [
        f"--log-verbose={int(level == 'verbose')}",
        f"--log-info={_boolean(rank >= LOG_LEVELS.index('info'))}",
        f"--log-warning={_boolean(rank >= LOG_LEVELS.index('warning'))}",
    ]


def environment(binary: ServerBinary, threads: int, mark: str) -> dict[str, str]:
    """The server's environment, which its stubs inherit.

    The stub runs isolated and takes its packages from the environment of the first `python3` on PATH, so ours
    comes first. OMP_NUM_THREADS bounds the engine's kernels; the tokenizing models run no OpenMP region, and
    their Rust thread pool is switched off, so they keep to one thread each.
    """
    inherited = dict(os.environ)
    return inherited | {
        MARK_VARIABLE: mark,
        "PATH": _joined(Path(sys.prefix) / "bin", inherited.get("PATH")),
        "LD_LIBRARY_PATH": _joined(*binary.libraries, inherited.get("LD_LIBRARY_PATH")),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        # glibc gives each of a server's many threads a heap of its own, which keeps what was freed in it: memory grows
        # for hours with nothing leaked. Two heaps are enough for so few threads that allocate at the same time.
        "MALLOC_ARENA_MAX": inherited.get("MALLOC_ARENA_MAX", "2"),
        # Otherwise what a model prints appears only when its buffer is full.
        "PYTHONUNBUFFERED": "1",
    }


def available_cores() -> int:
    """Cores this process may use, counting a container's CPU quota."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no cgroup v2 here, or the quota is "max"
        return cores


def _joined(*parts: Path | str | None) -> str:
    return os.pathsep.join(str(part) for part in parts if part)


def _boolean(value: bool) -> str:
    return str(value).lower()


def _has_nvidia_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()
