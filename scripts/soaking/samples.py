"""What the server's processes hold: memory, open files, shared memory."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.launcher import leftovers

from .ledger import Ledger
from .subject import Subject

_MODEL = re.compile(rb"/([^/\0]+)/\d+/model\.py\0")
_RSS = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)
_MIB = 1 << 20


class Sample(NamedTuple):
    """rss: MiB by what a process is: server, launcher, or the model that it holds, whose processes are added up.

    files: open ones, likewise. shared: MiB in /dev/shm.
    """

    at: float
    phase: str
    rss: dict[str, float]
    files: dict[str, int]
    shared: float

    @property
    def total_rss(self) -> float:
        """MiB of all but the launcher; pages that processes share count for each."""
        return sum(value for name, value in self.rss.items() if name != "launcher")


def judged(samples: Sequence[Sample], phase: str) -> list[Sample]:
    """Those of a phase whose memory counts: the first third is warm-up."""
    of_phase = [sample for sample in samples if sample.phase == phase]
    return of_phase[len(of_phase) // 3 :]


def take(subject: Subject, at: float, phase: str) -> Sample:
    """Look once. A process that ends meanwhile is left out."""
    mark = subject.mark()
    rss: defaultdict[str, float] = defaultdict(float)
    files: Counter[str] = Counter()
    named = [(_name(pid), pid) for pid in leftovers.marked_processes(mark)]
    for name, pid in [*named, ("launcher", subject.launcher.pid)]:
        try:
            found = _RSS.search(Path(f"/proc/{pid}/status").read_text())
            files[name] += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
        rss[name] += int(found[1]) / 1024 if found else 0.0
    return Sample(at, phase, dict(rss), dict(files), _shared(subject, mark))


def _shared(subject: Subject, mark: str) -> float:
    blocks = 0
    for region in subject.shared_memory.glob(f"{mark}*"):
        try:
            blocks += region.stat().st_blocks
        except OSError:  # gone since the listing
            continue
    return blocks * 512 / _MIB


def _name(pid: int) -> str:
    try:
        found = _MODEL.search(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return "gone"
    return found[1].decode() if found else "server"


class Sampler:
    """Looks every so many seconds, in a thread of its own."""

    def __init__(self, subject: Subject, ledger: Ledger, seconds: float) -> None:
        self.samples: list[Sample] = []
        self.ledger = ledger
        self._subject, self._seconds = subject, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def now(self) -> Sample:
        """A sample out of turn."""
        return take(self._subject, self.ledger.clock(), self.ledger.phase)

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                self.samples.append(self.now())
            except TimeoutError:  # between two servers
                continue
