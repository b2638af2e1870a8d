"""How much main memory can be taken: what the machine has, or what is left of a container's limit if that is less."""

from __future__ import annotations

from pathlib import Path

from backend.errors import ConfigError

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
"""Of cgroup version 2, as a container sees its own; on a machine itself it has no limit."""


def available_memory(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Bytes that can be taken without swapping, as the kernel estimates it, nor being killed. Raises ConfigError."""
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            machine = int(line.split()[1]) * 1024
            left = _left_of_limit(cgroup)
            return machine if left is None else min(machine, left)
    raise ConfigError("/proc/meminfo has no MemAvailable; set max_tokens_in_paged_kv_cache")


def _left_of_limit(cgroup: Path) -> int | None:
    """None without a limit. Pages of files that nobody has touched lately are counted, but given back at need."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        taken = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no cgroup v2 here, or the limit is "max"
        return None
    return max(0, limit - taken + int(stat.get("inactive_file", 0)))
