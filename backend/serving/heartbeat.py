"""A sign of life for the launcher: a file that this process writes anew as long as it runs.

The watchdog sees an engine that stands still, but not when the whole process does: stopped by a signal, or with one
thread that never lets go of the interpreter. The other side is scripts/launcher/pulse.py.
"""

from __future__ import annotations

import contextlib
from pathlib import Path


class Heartbeat:
    """Writes ``alive`` in ``directory``; does nothing without one.

    limit: seconds without a beat after which this process may be taken for stuck. It is what stands in the file.
    """

    def __init__(self, directory: str, limit: float) -> None:
        self._file = Path(directory, "alive") if directory else None
        self._limit = limit

    def beat(self) -> None:
        """To be called several times within the limit. A disk that takes nothing is no reason to stop serving."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                # Whole or not at all: a process that is stopped in the midst of it must be missed, too.
                written = self._file.with_suffix(".new")
                written.write_text(f"{self._limit}\n")
                written.replace(self._file)

    def close(self) -> None:
        """There will be no further beat, and nobody is to miss one."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)
