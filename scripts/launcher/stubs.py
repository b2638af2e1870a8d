"""The processes that hold the Python models ("stubs"), watched because Triton Server does not watch them.

Triton Server 2.51 answers "ready" when a model's process is dead, never starts it again, and fails every request.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from .leftovers import parent_of


class StubWatch:
    """Holds a descriptor of each stub, so that an end is seen even before the server has collected it, and after."""

    def __init__(self, server: int, repositories: Sequence[Path]) -> None:
        """`server` is the server's process, `repositories` what it loads from. Nothing is watched before `look`."""
        self._server = server
        self._repositories = repositories
        self._poll = select.poll()
        self._stubs: dict[int, tuple[int, str]] = {}  # descriptor -> process id, model

    def look(self, pids: list[int]) -> None:
        """Watch the stubs among `pids`, the server's processes now, too. Those watched before stay, ended or not."""
        ended = self._ended()
        known = {pid for descriptor, (pid, _) in self._stubs.items() if descriptor not in ended}
        for pid in pids:
            # A process that a model forks has the stub's command line too, and may come and go.
            new = pid not in known and parent_of(pid) == self._server
            if new and (model := _model_of(pid, self._repositories)):
                with contextlib.suppress(ProcessLookupError):
                    self._add(os.pidfd_open(pid), pid, model)

    def dead(self) -> list[str]:
        """Names of the models of which a process has ended and is not forgotten."""
        return sorted({self._stubs[descriptor][1] for descriptor in self._ended()})

    def forget_dead(self, models: Collection[str]) -> None:
        """Watch those processes of these models no more that have ended."""
        for descriptor in self._ended():
            if self._stubs[descriptor][1] not in models:
                continue
            self._poll.unregister(descriptor)
            os.close(descriptor)
            del self._stubs[descriptor]

    def alive(self) -> Counter[str]:
        """How many processes of each model have not ended."""
        ended = self._ended()
        return Counter(model for descriptor, (_, model) in self._stubs.items() if descriptor not in ended)

    def close(self) -> None:
        """Stop watching."""
        for descriptor in self._stubs:
            os.close(descriptor)
        self._stubs.clear()
        self._poll = select.poll()

    def _ended(self) -> set[int]:
        return {descriptor for descriptor, _ in self._poll.poll(0)}

    def _add(self, descriptor: int, pid: int, model: str) -> None:
        self._stubs[descriptor] = (pid, model)
        self._poll.register(descriptor, select.POLLIN)


def _model_of(pid: int, repositories: Sequence[Path]) -> str | None:
    """The model that a process holds: a stub's first argument is <repository>/<model>/<version>/model.py."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    place = Path(arguments[1]) if len(arguments) > 1 else Path()
    return next((place.relative_to(r).parts[0] for r in repositories if place.is_relative_to(r)), None)
