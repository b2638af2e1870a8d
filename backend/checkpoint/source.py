"""Where a converted directory came from: kept inside it, so that a stale cache is noticed."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

CONVERTER_VERSION = 1
"""Raised whenever the converter writes something else, so that older directories are made again."""
FILE = "source.json"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The fingerprint of one GGUF file and of the converter that read it."""

    name: str
    size: int
    mtime_ns: int
    sha256: str
    converter: int = CONVERTER_VERSION


def fingerprint(path: Path) -> Source:
    """The fingerprint of a file; reads all of it."""
    stat = path.stat()
    return Source(name=path.name, size=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=sha256(path))


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def write_source(directory: Path, source: Source) -> None:
    """Keep the fingerprint in `directory`."""
    (directory / FILE).write_text(json.dumps(asdict(source), indent=2) + "\n")


def read_source(directory: Path) -> Source | None:
    """The fingerprint kept in `directory`; None where there is none that can be read."""
    try:
        return Source(**json.loads((directory / FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def made_from(directory: Path, path: Path) -> bool:
    """Whether `directory` was made by this converter from `path` as it is now; reads it only if it was touched."""
    kept, stat = read_source(directory), path.stat()
    if kept is None or kept.converter != CONVERTER_VERSION or kept.size != stat.st_size:
        return False
    return kept.mtime_ns == stat.st_mtime_ns or kept.sha256 == sha256(path)
