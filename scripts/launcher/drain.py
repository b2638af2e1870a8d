"""Letting open requests finish before the server ends; the other side is backend/serving/drain_watch.py."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Callable
from pathlib import Path

POLL_SECONDS = 0.05
SETTLE_SECONDS = 0.5
"""From the engine's last response to the client's: it passes the detokenizer and the network."""
NOT_READY = "shutting_down"


class Drain:
    """The files by which launcher and engine speak."""

    def __init__(self, directory: Path) -> None:
        """`directory` is made here."""
        directory.mkdir()
        self.directory = directory

    def run(self, grace: float, told: float, hurry: Callable[[], bool]) -> None:
        """Let requests finish for `grace` seconds, then `told` seconds for the rest to be told; less when hurried."""
        (self.directory / "drain").touch()
        if not self._drained(grace, hurry) and not hurry():
            (self.directory / "stop").touch()
            self._drained(told, hurry)
        if not hurry():
            time.sleep(SETTLE_SECONDS)

    def _drained(self, seconds: float, hurry: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + seconds
        while not (self.directory / "drained").exists():
            if time.monotonic() > deadline or hurry():
                return False
            time.sleep(POLL_SECONDS)
        return True


def make_not_ready(repository: Path, host: str, port: int, header: tuple[str, str]) -> None:
    """Have the server say that it is not ready, while it goes on serving.

    It has no switch for that; but it is not ready while any model that it was to load is not, so it is asked to load
    one that cannot be. `header` opens its model control.
    """
    (repository / NOT_READY / "1").mkdir(parents=True)
    (repository / NOT_READY / "config.pbtxt").write_text(f'name: "{NOT_READY}"\nbackend: "none"\n')
    connection = http.client.HTTPConnection(host, port, timeout=5)
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
        connection.request("POST", f"/v2/repository/models/{NOT_READY}/load", "{}", dict([header]))
        connection.getresponse().read()
