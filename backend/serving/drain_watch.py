"""Draining: how a launcher tells the engine, through files in a directory, that the server is about to end.

Once Triton Server itself is told to end it refuses the inner steps of requests that are under way, so the ensemble's
streams break off. So the launcher tells the engine first::

    launcher: drain    ──>  new requests are refused, open ones go on
    engine:   drained  ──>  nothing is open any more
    launcher: stop     ──>  whoever is still open gets an error; then ``drained``
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

_POLL_SECONDS = 0.1


class DrainWatch:
    """Follows the files of ``directory`` in a thread of its own; does nothing without a directory."""

    def __init__(
        self,
        directory: str,
        *,
        refuse: Callable[[], None],
        idle: Callable[[], bool],
        stop: Callable[[], None],
    ) -> None:
        """refuse: take no new request. idle: whether every request has had its last response. stop: end the rest."""
        self._directory = Path(directory) if directory else None
        self._refuse = refuse
        self._idle = idle
        self._stop = stop
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drain-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch, if there is a directory."""
        if self._directory is not None:
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        assert self._directory is not None
        drain, drained, stop = (self._directory / name for name in ("drain", "drained", "stop"))
        if not self._wait(drain.exists):
            return
        self._refuse()
        if not self._wait(lambda: self._idle() or stop.exists()):
            return
        if not self._idle():
            self._stop()
            self._wait(self._idle)
        drained.touch()

    def _wait(self, condition: Callable[[], bool]) -> bool:
        """Until the condition holds; False if the watch is closed first."""
        while not condition():
            if self._stopping.wait(_POLL_SECONDS):
                return False
        return True
