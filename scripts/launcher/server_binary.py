"""Where Triton Server's binary is and what it needs around it.

An installed server (NVIDIA's container, or one on PATH) is used as it is. Otherwise the one in the wheel
nvidia-pytriton serves; its parts lie apart, so a backend directory is put together from links for each server:
that takes under a millisecond, and nothing can be stale or half-made.

    <workspace>/backends/python/libtriton_python.so           -> the wheel
                                triton_python_backend_utils.py -> the wheel
                                triton_python_backend_stub     a copy: the stub of this Python, executable
    <workspace>/lib/libpython3.x.so.1.0                        -> this interpreter's library, which the stub loads
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from .errors import LaunchError

CONTAINER_ROOT = Path("/opt/tritonserver")
"""Where NVIDIA's server images keep the server."""

PYTHON_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
STUB = "triton_python_backend_stub"


@dataclass(frozen=True, kw_only=True)
class ServerBinary:
    """An executable, its backend directory, and the directories its processes load libraries from."""

    executable: Path
    backends: Path
    libraries: tuple[Path, ...] = ()


def find(workspace: Path) -> ServerBinary:
    """The server to run; may write below `workspace`. Raises LaunchError when there is none."""
    return _installed() or _from_wheel(workspace)


def _installed() -> ServerBinary | None:
    on_path = shutil.which("tritonserver")
    executable = Path(on_path).resolve() if on_path else CONTAINER_ROOT / "bin" / "tritonserver"
    backends = executable.parents[1] / "backends"
    if executable.exists() and (backends / "python").is_dir():
        return ServerBinary(executable=executable, backends=backends)
    return None


def _from_wheel(workspace: Path) -> ServerBinary:
    wheel = _wheel()
    stub = wheel / "tritonserver" / "python_backend_stubs" / PYTHON_VERSION / STUB
    if not stub.exists():
        raise LaunchError(f"nvidia-pytriton has no Python backend for Python {PYTHON_VERSION}; use 3.11 or 3.12")
    return ServerBinary(
        executable=wheel / "tritonserver" / "bin" / "tritonserver",
        backends=_assemble(workspace / "backends", wheel / "tritonserver" / "backends" / "python", stub),
        libraries=(wheel.parent / "nvidia_pytriton.libs", *_python_library(workspace / "lib")),
    )


def _wheel() -> Path:
    # find_spec does not import the package, which would take half a second.
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        raise LaunchError(
            "no Triton Server here: neither `tritonserver` on PATH nor the package nvidia-pytriton; "
            "start with scripts/serve, which installs it"
        )
    return Path(spec.origin).parent


def _assemble(backends: Path, parts: Path, stub: Path) -> Path:
    python = backends / "python"
    python.mkdir(parents=True)
    for part in ("libtriton_python.so", "triton_python_backend_utils.py"):
        (python / part).symlink_to(parts / part)
    # Some installers drop the execute bit of files inside a package, and the wheel is not ours to change.
    shutil.copyfile(stub, python / STUB)
    (python / STUB).chmod(0o755)
    return backends


def _python_library(directory: Path) -> tuple[Path, ...]:
    """A directory with this interpreter's shared library alone, or nothing where the system finds it.

    Its own directory is not put on the library path: conda's, for one, holds many other libraries.
    """
    name = f"libpython{PYTHON_VERSION}.so.1.0"
    places = (sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib")
    for library in (Path(place) / name for place in places if place):
        if library.exists():
            directory.mkdir()
            (directory / name).symlink_to(library)
            return (directory,)
    return ()
