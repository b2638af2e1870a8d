"""Environments of other people's clients: each in a virtual environment of its own, made once and kept in .cache.

The versions are pinned in tests/clients/<client>.txt; a changed file makes a new environment. What a client does is a
script in tests/clients/, run by that environment's Python, which prints one line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from backend.checkpoint.publish import exclusive

ROOT = Path(__file__).resolve().parents[1]
CLIENTS = Path(__file__).resolve().parent / "clients"
ENVIRONMENTS = ROOT / ".cache" / "clients"
_SECONDS = 300


def python_of(client: str) -> Path:
    """The interpreter of a client's environment, which is made first where it is not there."""
    requirements = CLIENTS / f"{client}.txt"
    version = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    place = ENVIRONMENTS / f"{client}-{version}"
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with exclusive(place):
        if not (place / "ready").exists():
            _make(place, requirements)
    return place / "bin" / "python"


def _make(place: Path, requirements: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    # Without dependencies: a file names all that its client imports, and neither resolves nor installs anything else.
    # Uncompiled: compiling takes longer than the rest, and most of it is never imported.
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile"]
    subprocess.run([place / "bin" / "python", "-m", "pip", "install", *options, "-r", requirements], check=True)
    (place / "ready").touch()


def run_client(client: str, script: str, **arguments: Any) -> Any:
    """What tests/clients/<script>.py prints as JSON when it is given the arguments as JSON."""
    line = [str(python_of(client)), str(CLIENTS / f"{script}.py"), json.dumps(arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
