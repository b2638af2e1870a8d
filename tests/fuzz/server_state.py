"""What a server must be like after anything: the same processes, an empty pool, the same answer as ever."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.metrics_page import Page, settled
from tests.server_fixture import RunningServer

_GAUGES = ("running_sequences", "waiting_sequences", "swapped_sequences", "pool_blocks_used")


def processes(server: RunningServer) -> dict[int, str]:
    """The server's processes: id -> the model that a stub runs, or the program."""
    return {pid: _label(pid) for pid in _family(server.process.pid)}


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from _family(int(child))


def _label(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    found = [Path(word).parents[1].name for word in words if word.endswith("/1/model.py")]
    return found[0] if found else Path(words[0]).name


def resident_mib(server: RunningServer) -> dict[str, int]:
    """Resident memory by what a process is; several of a kind are added up."""
    page = os.sysconf("SC_PAGE_SIZE")
    found: Counter[str] = Counter()
    for pid, label in processes(server).items():
        found[label] += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page >> 20
    return dict(found)


def problems_at_rest(server: RunningServer) -> list[str]:
    """What is left over though nothing is in flight: sequences, or blocks that are neither free nor merely cached."""
    expected = dict.fromkeys(_GAUGES, 0.0) | {"lost": 0.0}
    found = settled(server, _gauges, expected)
    return [] if found == expected else [f"not at rest: {found}"]


def _gauges(page: Page) -> dict[str, float]:
    values = {name: page.value(f"inflight_{name}") for name in _GAUGES}
    blocks = {kind: page.value(f"inflight_pool_blocks{kind}") for kind in ("", "_used", "_cached", "_free")}
    return values | {"lost": blocks[""] - sum(blocks[kind] for kind in ("_used", "_cached", "_free"))}
