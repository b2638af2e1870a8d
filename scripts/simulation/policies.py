"""The rules that are compared. Slots, step tokens, prefix cache and blocks are the same for all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from backend.kv.block_pool import BlockPool
from backend.kv.host_pool import HostPool
from backend.scheduler.costs import PreemptionCosts
from backend.scheduler.settings import SchedulerSettings
from scripts.simulation.hardware import BLOCK_SIZE, Platform
from scripts.simulation.vllm_rule import VllmRule
from scripts.simulation.watched_scheduler import WatchedScheduler
from scripts.simulation.workload import MAX_SEQ_LEN

_NO_CAP = 1 << 30
_VLLM = {
    "preemption": False,
    "preemption_cap": _NO_CAP,
    "free_block_reserve": 0.0,
    "ageing_seconds": 0.0,
    "target_step_seconds": 0.0,
    "ride_along": 1e9,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """levels, tenants: whether it tells them apart. swap: whether victims may go to host memory. rule: who decides."""

    name: str
    rule: type[WatchedScheduler] = WatchedScheduler
    levels: bool = True
    tenants: bool = True
    swap: bool = True
    settings: dict[str, Any] = field(default_factory=dict)

    def scheduler(self, platform: Platform, pool_tokens: int) -> WatchedScheduler:
        """A scheduler of this policy. The host pool is as large as the device's."""
        blocks = max(MAX_SEQ_LEN, pool_tokens) // BLOCK_SIZE
        costs = platform.costs
        if not self.swap:
            costs = PreemptionCosts(
                seconds_per_token=costs.seconds_per_token, seconds_per_block=costs.seconds_per_block, mode="recompute"
            )
        settings = {"ageing_seconds": 30.0, "target_step_seconds": platform.target_seconds, **self.settings}
        made = SchedulerSettings(
            block_size=BLOCK_SIZE,
            max_batch_size=platform.slots,
            max_num_tokens=platform.step_tokens,
            max_seq_len=MAX_SEQ_LEN,
            **settings,
        )
        return self.rule(made, BlockPool(blocks + 1), HostPool(blocks if self.swap else 0), costs)


POLICIES = {
    policy.name: policy
    for policy in (
        Policy(name="ours"),
        # All one level and one tenant: arrival alone. The newest gives way when the pool is short.
        Policy(name="fcfs", rule=VllmRule, levels=False, tenants=False, swap=False, settings=_VLLM),
        # Levels order who waits; who runs is taken from only when the pool is short, and computed again.
        Policy(name="vllm", rule=VllmRule, tenants=False, swap=False, settings=_VLLM),
        # Nobody is ever taken from: admission reserves to the end, and no level preempts.
        Policy(name="no_evict", settings={"guaranteed_no_evict": True, "preemption": False}),
    )
}
