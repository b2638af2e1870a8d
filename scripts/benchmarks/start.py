"""How long scripts/serve takes until it is ready, with everything it needs there already, and what it holds at rest."""

from __future__ import annotations

import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launcher import leftovers
from launcher.from_outside import mark_of
from launcher.hints import READY_LINE

SERVE = Path(__file__).resolve().parents[1] / "serve"
FREE_PORTS = ("--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")
_REST_SECONDS = 5.0
_END_SECONDS = 60.0


def starts(rounds: int, options: list[str]) -> dict[str, Any]:
    """Start and end it so many times: seconds of each and their median; memory at rest in MB, of 10^6 bytes, likewise.

    Raises OSError where it does not become ready.
    """
    seconds, megabytes = [], []
    for _ in range(rounds):
        with _served(options) as (process, took):
            seconds.append(round(took, 2))
            time.sleep(_REST_SECONDS)
            megabytes.append(round(_memory(process.pid) / 1e6, 1))
    return {
        "bench": "start",
        "ready_s": round(statistics.median(seconds), 2),
        "each_s": seconds,
        "rest_mb": round(statistics.median(megabytes), 1),
        "each_mb": megabytes,
    }


@contextmanager
def _served(options: list[str]) -> Iterator[tuple[subprocess.Popen[str], float]]:
    began = time.monotonic()
    with subprocess.Popen([SERVE, *FREE_PORTS, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            while not READY_LINE.match(line := process.stdout.readline()):
                if not line:
                    raise OSError("scripts/serve ended before it was ready")
            yield process, time.monotonic() - began
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()  # its watchdog then ends the rest


def _memory(launcher: int) -> int:
    """Bytes of the launcher, the server and the models' processes; what several map is shared out among them."""
    return sum(_proportional(pid) for pid in [launcher, *leftovers.marked_processes(mark_of(launcher))])


def _proportional(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
