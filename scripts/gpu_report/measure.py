"""Time, and the ceilings that rates are compared with: both measured on the chip at hand."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

CACHE_BYTES = 256 * 2**20  # more than any chip's last-level cache


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the report. ok: None where nothing was promised. share: of a measured ceiling, 0 to 1."""

    section: str
    name: str
    value: str
    ok: bool | None = None
    share: float | None = None

    def as_dict(self) -> dict[str, object]:
        """For the JSON file."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Bench:
    """Where to run and at what size. end: time.monotonic() after which nothing new is begun."""

    device: torch.device
    end: float

    @property
    def toy(self) -> bool:
        """Whether there is no GPU, so that only the way is tested, on small tensors."""
        return self.device.type == "cpu"

    def pick(self, real: int, toy: int) -> int:
        """A size."""
        return toy if self.toy else real

    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.end

    def free_bytes(self) -> float:
        """Device memory that can be taken, what earlier measurements left included; without limit for toys."""
        if self.toy:
            return float("inf")
        gc.collect()
        torch.cuda.empty_cache()
        return float(torch.cuda.mem_get_info()[0])

    def seconds(self, run: Callable[[], object], repeats: int = 10, cold: bool = True) -> float:
        """Median time of a run; cold: with the cache filled with other data before each."""
        if self.toy:
            return _host_seconds(run)
        return _device_seconds(run, repeats, cold)


def _host_seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _device_seconds(run: Callable[[], object], repeats: int, cold: bool) -> float:
    filler = torch.empty(CACHE_BYTES, dtype=torch.uint8, device="cuda") if cold else None
    for _ in range(2):
        run()
    times = []
    for _ in range(repeats):
        if filler is not None:
            filler.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the chip reaches: bytes a second read and written by a copy, bfloat16 operations a second of a product."""

    bandwidth: float
    rate: float


def ceilings(bench: Bench) -> Ceilings:
    """Measure both."""
    source = torch.ones(bench.pick(2**30, 2**20), dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    bandwidth = 2 * source.numel() / bench.seconds(lambda: target.copy_(source))
    size = bench.pick(8192, 128)
    a = torch.randn(size, size, dtype=torch.bfloat16, device=bench.device)
    return Ceilings(bandwidth, 2 * size**3 / bench.seconds(lambda: a @ a))
