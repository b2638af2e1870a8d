"""What the server and its stubs write: shown at the chosen level, and read for the reason of a failed start."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
from collections import deque
from typing import IO

KEPT_LINES = 2000

# What Triton Server says on every machine without an NVIDIA GPU or DCGM, or at every end (a part of which is the model
# that drain.py has it fail to load): nobody need act on it.
NOISE = re.compile(
    "Unable to allocate pinned system memory|no pinned memory pool, falling back|"
    "CudaDriverHelper has not been initialized|unable to create stream for .*: CUDA driver version|"
    r"Failed to initialize NVML|DCGM unable to start|^Signal \(\d+\) received|"
    "failed to load 'shutting_down'|failed to stop server: Internal - Exit timeout expired"
)

_GLOG = re.compile(r"^[EWIF]\d{4} [\d:.]+ \d+ [\w.]+:\d+\] (?P<message>.*)$")
_FAILED_LOAD = re.compile(r"failed to load '(?P<model>[^']+)' version \d+: [A-Z][\w ]*: (?P<why>.*)", re.DOTALL)
_BAD_CONFIG = re.compile(r"Poll failed for model directory '(?P<model>[^']+)': (?P<why>.*)", re.DOTALL)
_FATAL = re.compile(r"^error: (?P<why>.*)|^(?P<loader>.*error while loading shared libraries: .*)")
_STUB_DIED = re.compile(r"Stub process '[^']+' is not healthy")


class ServerLog:
    """Reads a server's output on a thread of its own until the output ends, and closes it.

    `live` shows each line as it comes. Otherwise lines are held until `release()`, so that a failed start can be
    told in one line instead of after a page of consequences.
    """

    def __init__(self, output: IO[bytes], *, live: bool) -> None:
        self._output = output
        self._show_noise = live
        self._live = live
        self._lock = threading.Lock()
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._load_failure: str | None = None
        self._thread = threading.Thread(target=self._read, name="server-log", daemon=True)
        self._thread.start()

    @property
    def load_failure(self) -> str | None:
        """`model: message` of the first model that failed to load, as soon as the server says so."""
        return self._load_failure

    def release(self) -> None:
        """Show what was held, and every later line at once."""
        with self._lock:
            if not self._live:
                for line in self._lines:
                    self._show(line)
            self._live = True

    def join(self, seconds: float) -> None:
        """Wait until everything written so far is read; the output must have ended."""
        self._thread.join(seconds)

    def failure(self) -> str | None:
        """The reason of a failed start as one line, or None when the log tells none."""
        with self._lock:
            lines = list(self._lines)
        return self._load_failure or _fatal(lines) or next(reversed(lines), None)

    def _read(self) -> None:
        with self._output as output:
            for raw in output:
                # Of a progress bar, which overwrites itself, only the last state is a line.
                self._take(raw.decode("utf-8", "replace").rstrip("\r\n").rpartition("\r")[2])

    def _take(self, line: str) -> None:
        with self._lock:
            self._lines.append(line)
            self._load_failure = self._load_failure or load_failure(line)
            if self._live:
                self._show(line)

    def _show(self, line: str) -> None:
        if self._show_noise or not NOISE.search(line):
            # A closed terminal must not end the reading, or the server would block on a full pipe.
            with contextlib.suppress(OSError, ValueError):
                print(line, file=sys.stderr, flush=True)


def load_failure(line: str) -> str | None:
    """`model: message` when this log line says that a model failed to load."""
    message = _message(line)
    found = _FAILED_LOAD.search(message) or _BAD_CONFIG.search(message)
    return f"{found['model'].rpartition('/')[2]}: {_plain(found['why'])}" if found else None


def _fatal(lines: list[str]) -> str | None:
    for line in lines:
        if found := _FATAL.search(line):
            return found["why"] or found["loader"]
    return None


def _message(line: str) -> str:
    """A log line's message; Triton Server quotes it as JSON, newlines escaped."""
    found = _GLOG.match(line)
    if not found:
        return line
    message = found["message"]
    with contextlib.suppress(ValueError):
        message = str(json.loads(message))
    return message


def _plain(why: str) -> str:
    """The model's own words: without the exception's wrapping and the place in the source."""
    if _STUB_DIED.search(why):
        return "its process died while it loaded (often for want of memory; see the system's log)"
    text = why.partition("\n\nAt:\n")[0].removeprefix("TritonModelException: ")
    return " ".join(text.split())
