"""Free memory, on a machine and in a container, from files as the kernel writes them."""

from pathlib import Path

import pytest

from backend.errors import ConfigError
from backend.free_memory import available_memory

GIB = 1 << 30


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    """Of a machine with 8 GiB to take."""
    path = tmp_path / "meminfo"
    path.write_text(f"MemTotal: 16777216 kB\nMemFree: 1048576 kB\nMemAvailable: {8 * GIB // 1024} kB\n")
    return path


def limited(directory: Path, limit: str) -> Path:
    """A container that has taken 3 GiB, one of which is a file's pages that nobody uses."""
    directory.mkdir()
    (directory / "memory.max").write_text(f"{limit}\n")
    (directory / "memory.current").write_text(f"{3 * GIB}\n")
    (directory / "memory.stat").write_text(f"anon {2 * GIB}\nfile {GIB}\ninactive_file {GIB}\n")
    return directory


@pytest.mark.parametrize(
    ("limit", "free"),
    [("max", 8 * GIB), (str(64 * GIB), 8 * GIB), (str(6 * GIB), 4 * GIB), (str(GIB), 0)],
)
def test_a_containers_limit_counts_where_it_leaves_less_than_the_machine_has(
    meminfo: Path, tmp_path: Path, limit: str, free: int
) -> None:
    assert available_memory(meminfo, limited(tmp_path / "cgroup", limit)) == free


def test_without_a_cgroup_the_machine_counts(meminfo: Path, tmp_path: Path) -> None:
    assert available_memory(meminfo, tmp_path / "none") == 8 * GIB


def test_a_kernel_that_does_not_say_is_an_error_that_names_the_knob(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\n")
    with pytest.raises(ConfigError, match="max_tokens_in_paged_kv_cache"):
        available_memory(tmp_path / "meminfo", tmp_path)
