"""The processes that hold the Python models ("stubs"), watched because Triton Server does not watch them.

Triton Server 2.51 answers "ready" when a model's process is dead, never starts it again, and fails every request.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .leftovers import parent_of


class StubWatch:
    """Holds a descriptor of each stub, so that an end is seen even before the server has collected it."""

    def __init__(self, server: int, repositories: Sequence[Path]) -> None:
        """`server` is the server's process, `repositories` what it loads from. Nothing is watched before `look`."""
        self._server = server
        self._repositories = repositories
        self._poll = select.poll()
        self._models: dict[int, str] = {}

    def look(self, pids: list[int]) -> None:
        """Watch the stubs among `pids`, the server's processes now, in place of those watched before."""
        self.close()
        for pid in pids:
            # A process that a model forks has the stub's command line too, and may come and go.
            if parent_of(pid) == self._server and (model := _model_of(pid, self._repositories)):
                with contextlib.suppress(ProcessLookupError):
                    self._add(os.pidfd_open(pid), model)

    def dead(self) -> list[str]:
        """Names of the models whose process has ended since the last look."""
        return sorted({self._models[descriptor] for descriptor, _ in self._poll.poll(0)})

    def alive(self) -> Counter[str]:
        """How many processes of each model have not ended since the last look."""
        ended = Counter(self._models[descriptor] for descriptor, _ in self._poll.poll(0))
        return Counter(self._models.values()) - ended

    def close(self) -> None:
        """Stop watching."""
        for descriptor in self._models:
            os.close(descriptor)
        self._models.clear()
        self._poll = select.poll()

    def _add(self, descriptor: int, model: str) -> None:
        self._models[descriptor] = model
        self._poll.register(descriptor, select.POLLIN)


def _model_of(pid: int, repositories: Sequence[Path]) -> str | None:
    """The model that a process holds: a stub's first argument is <repository>/<model>/<version>/model.py."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    place = Path(arguments[1]) if len(arguments) > 1 else Path()
    return next((place.relative_to(r).parts[0] for r in repositories if place.is_relative_to(r)), None)
