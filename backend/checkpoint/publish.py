"""A directory that appears whole or not at all, however many processes make it and whenever they are killed.

lock   <parent>/.<name>.lock            held by the one process that works on <name>; freed by the kernel on death
work   <parent>/.<name>.partial-XXXX    swept by the next holder of the lock, if its maker was killed
ready  <parent>/<name>                  renamed into place after everything is on disk
"""

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(target: Path) -> Iterator[None]:
    """Hold the lock of `target`; waits for another holder. Makes the parent directory, removes abandoned work."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in target.parent.glob(f".{glob.escape(target.name)}.partial-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def scratch(target: Path) -> Path:
    """A new empty directory beside `target`, for the holder of its lock."""
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
    made.chmod(0o755)  # mkdtemp makes it private, but a server may run as another user
    return made


def publish(target: Path, fill: Callable[[Path], None]) -> None:
    """Make `target` out of what `fill` writes into a scratch directory, in place of an older `target`.

    For the holder of the lock. If `fill` raises, `target` stays as it was and the scratch directory is removed.
    """
    work = scratch(target)
    try:
        fill(work)
        _sync(work)
        if target.exists():
            target.rename(scratch(target) / "old")
        work.rename(target)
        _sync_one(target.parent)
    finally:
        for left in target.parent.glob(f".{glob.escape(target.name)}.partial-*"):
            shutil.rmtree(left, ignore_errors=True)


def _sync(directory: Path) -> None:
    for path in [*directory.rglob("*"), directory]:
        _sync_one(path)


def _sync_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
