"""Many cells in a row, one JSON line each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from tqdm import tqdm

from scripts.simulation.calibration import Capacity, idle_ttft, measure_capacity
from scripts.simulation.cell import Cell, Run
from scripts.simulation.hardware import Platform
from scripts.simulation.policies import POLICIES, Policy
from scripts.simulation.workload import Mix

LOADS = (0.5, 0.8, 1.0, 1.2)
POOLS = (2.0, 1.0, 0.6, 0.3)
FULL_LOAD, SCARCE_POOL = 1.0, 0.6


class Grid(NamedTuple):
    """What is run: every combination, or with ``cross`` only those at full load or with the scarce pool."""

    platforms: list[Platform]
    policies: tuple[Policy, ...] = tuple(POLICIES.values())
    loads: tuple[float, ...] = LOADS
    pools: tuple[float, ...] = POOLS
    cross: bool = False

    def cells(self, platform: Platform) -> list[Cell]:
        """Policies innermost, so that comparable cells run one after the other."""
        return [
            Cell(platform=platform, policy=policy, load=load, pool=pool)
            for load, pool, policy in itertools.product(self.loads, self.pools, self.policies)
            if not self.cross or load == FULL_LOAD or pool == SCARCE_POOL
        ]

    def run(self, mix: Mix, seed: int, requests: int, turnovers: int) -> Iterator[dict[str, Any]]:
        """Each cell's figures. turnovers: of all slots, while the capacity is measured."""
        total = requests * sum(len(self.cells(platform)) for platform in self.platforms)
        with tqdm(total=total, unit="request", unit_scale=True, smoothing=0.05) as bar:
            for platform in self.platforms:
                bar.set_description(f"{platform.name}: capacity")
                capacity = measure_capacity(platform, mix, seed, turnovers * platform.slots)
                idle = idle_ttft(platform, mix, mix.jobs(seed, requests))
                for cell in self.cells(platform):
                    bar.set_description(f"{platform.name} {cell.policy.name} {cell.load:.0%} {cell.pool:.0%}")
                    yield {**_run(cell, mix, seed, requests, capacity, bar), "idle": idle}


def _run(cell: Cell, mix: Mix, seed: int, requests: int, capacity: Capacity, bar: Any) -> dict[str, Any]:
    jobs = mix.jobs(seed, requests, cell.load * capacity.requests_per_second)
    run = Run(cell, mix, jobs, int(cell.pool * capacity.held_tokens), bar.update)
    return {**run.figures(), "seed": seed, "capacity": capacity._asdict()}
