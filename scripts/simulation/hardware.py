"""What a step costs: a roofline of one GPU group and one model.

seconds = max(FLOPs / (peak * mfu), bytes / (bandwidth * efficiency)) + copies + overhead, the roofline of Williams,
Waterman and Patterson (CACM 2009) with one ceiling each. Compute and memory traffic are taken to overlap fully inside a
step; swap copies are not, since they run before the step computes.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.scheduler.costs import PreemptionCosts
from backend.scheduler.plan import StepPlan

BLOCK_SIZE = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """A decoder's shape. bytes_per_weight: 2 = bfloat16, 1 = FP8. Keys and values are bfloat16."""

    parameters: float
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    bytes_per_weight: int = 2

    @property
    def weight_bytes(self) -> float:
        """Bytes read by every step."""
        return self.parameters * self.bytes_per_weight

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token's keys and values, all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2

    @property
    def attention_flops(self) -> int:
        """FLOPs of one query token against one key and value, all layers: a product for each, two FLOPs an element."""
        return 4 * self.layers * self.heads * self.head_dim


@dataclass(frozen=True, kw_only=True, slots=True)
class Platform:
    """GPUs that serve one model.

    flops: dense peak of all of them, at the precision of the matrices. bandwidth: bytes/s of all. memory: bytes of all.
    overhead: seconds of a step that neither ceiling covers (launches, sampling, all-reduces). copy_bandwidth: bytes/s
    between pool and host. slots, step_tokens, target_seconds: how the scheduler is set up, the same for every policy.
    """

    name: str
    model: ModelShape
    flops: float
    bandwidth: float
    memory: float
    overhead: float = 1e-3
    mfu: float = 0.5
    efficiency: float = 0.8
    copy_bandwidth: float = 50e9
    slots: int = 256
    step_tokens: int = 2048
    target_seconds: float = 0.05

    def step_seconds(self, plan: StepPlan) -> float:
        """Seconds of a step. To be asked right after it was scheduled, while the cursors stand behind its tokens."""
        keys = sum(sequence.num_computed for sequence in plan.decodes)
        pairs = float(keys)
        for chunk in plan.chunks:
            keys += chunk.start + chunk.num_tokens
            pairs += chunk.num_tokens * (chunk.start + (chunk.num_tokens + 1) / 2)
        copied = (len(plan.copies.to_host) + len(plan.copies.from_host)) * self.block_seconds
        return self.seconds(plan.num_tokens, keys, pairs) + copied

    def seconds(self, tokens: int, keys: int, pairs: float) -> float:
        """Seconds of a step without copies. keys: tokens whose keys and values are read. pairs: (query, key) pairs."""
        if not tokens:
            return self.overhead
        flops = 2 * self.model.parameters * tokens + self.model.attention_flops * pairs
        moved = self.model.weight_bytes + self.model.kv_bytes_per_token * keys
        return max(flops / (self.flops * self.mfu), moved / (self.bandwidth * self.efficiency)) + self.overhead

    @property
    def block_seconds(self) -> float:
        """Seconds of one copy of one block."""
        return BLOCK_SIZE * self.model.kv_bytes_per_token / self.copy_bandwidth

    @property
    def costs(self) -> PreemptionCosts:
        """What the scheduler would measure at load: prefill at the compute ceiling, copies at the link's speed."""
        per_token = 2 * self.model.parameters / (self.flops * self.mfu)
        return PreemptionCosts(seconds_per_token=per_token, seconds_per_block=self.block_seconds)

    @property
    def pool_tokens(self) -> int:
        """Tokens that the pool could hold on this hardware: nine tenths of the memory, less the weights."""
        return int((0.9 * self.memory - self.model.weight_bytes) / self.model.kv_bytes_per_token)


_8B = ModelShape(parameters=8.03e9, layers=32, heads=32, kv_heads=8, head_dim=128)
_70B = ModelShape(parameters=70.6e9, layers=80, heads=64, kv_heads=8, head_dim=128)
_70B_FP8 = ModelShape(parameters=70.6e9, layers=80, heads=64, kv_heads=8, head_dim=128, bytes_per_weight=1)

_ALL_REDUCES = 2 * 80 * 15e-6
"""Two per layer, 15 microseconds each over NVLink; not hidden."""

PLATFORMS = {
    platform.name: platform
    for platform in (
        Platform(name="h100-8b", model=_8B, flops=989e12, bandwidth=3.35e12, memory=80e9),
        Platform(name="h200-8b", model=_8B, flops=989e12, bandwidth=4.8e12, memory=141e9),
        Platform(
            name="h100x4-70b",
            model=_70B,
            flops=4 * 989e12,
            bandwidth=4 * 3.35e12,
            memory=4 * 80e9,
            copy_bandwidth=4 * 50e9,
            overhead=1e-3 + _ALL_REDUCES,
            step_tokens=1024,
            target_seconds=0.08,
        ),
        Platform(
            name="h200-70b-fp8",
            model=_70B_FP8,
            flops=1979e12,
            bandwidth=4.8e12,
            memory=141e9,
            step_tokens=512,
            target_seconds=0.08,
        ),
    )
}
"""Published dense peaks and bandwidths. 70B: bfloat16 on four H100 (tensor parallel), FP8 weights on one H200."""
