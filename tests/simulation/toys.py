"""A machine whose steps take a second, or a second per token, so that times can be counted on fingers."""

from __future__ import annotations

from scripts.simulation.cell import Cell, Run
from scripts.simulation.hardware import ModelShape, Platform
from scripts.simulation.policies import POLICIES
from scripts.simulation.workload import Job, Mix

_NOTHING = ModelShape(parameters=1e-9, layers=1, heads=1, kv_heads=1, head_dim=1)
MIX = Mix(prefixes=(64,), prefix_share=0.0)


def ticking(slots: int, step_tokens: int = 2048) -> Platform:
    """Every step takes one second, whatever it computes; copies take no time worth naming."""
    return Platform(
        name="ticking", model=_NOTHING, flops=1e30, bandwidth=1e30, memory=1e9, copy_bandwidth=1e60, overhead=1.0,
        slots=slots, step_tokens=step_tokens, target_seconds=0.0,
    )  # fmt: skip


def job(
    number: int, arrived: float, prompt: int, output: int, level: int = 2, tenant: str = "a", prefix: int = -1
) -> Job:
    return Job(number, arrived, level, tenant, prefix, prompt, output)


def run(
    jobs: list[Job],
    policy: str = "ours",
    slots: int = 4,
    pool_tokens: int = 8192,
    step_tokens: int = 2048,
    mix: Mix = MIX,
) -> Run:
    platform = ticking(slots, step_tokens)
    cell = Cell(platform=platform, policy=POLICIES[policy], load=1.0, pool=1.0)
    return Run(cell, mix, jobs, pool_tokens)
