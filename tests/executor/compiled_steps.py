"""A program: the GPU executor's steps in bfloat16, on tensors without memory, each kernel compiled for an H100 or H200.

Prints how many kernels the warm-up at load compiled, and which ones later steps of other sizes needed beside them: each
of those would halt a running server for a second. Run without TRITON_INTERPRET; --cold leaves the warm-up out.
"""

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from gpu_report.random_models import TOY, make_config, make_decoders, make_pool, make_weights
from kernel_report.targets import TARGETS, compiling_for

from backend.executor.device import HostDevice
from backend.executor.gpu import GpuExecutor, StepLimits
from backend.request import Request, Sequence
from backend.sampling_params import SamplingParams
from backend.scheduler.plan import BlockCopies, Chunk, StepPlan

META = torch.device("meta")
NOTHING = BlockCopies([], [], [], [])
SLOTS, STEP_TOKENS, LONGEST = 4, 64, 400
_numbers = itertools.count(1)


class MetaDevice(HostDevice):
    """A GPU of which only shapes and types are known."""

    def __init__(self) -> None:
        super().__init__()
        self.torch_device = META


def sequence(length: int, computed: int, **sampling: Any) -> Sequence:
    number = next(_numbers)
    params = SamplingParams(max_tokens=9, **sampling)
    made = Sequence(Request(request_id=number, prompt=(7,) * length, sampling=params, level=1, arrival=number))
    made.blocks, made.num_computed = list(range(1, 2 + length // 16)), computed
    return made


def steps() -> list[StepPlan]:
    """Decodes of each number, alone and with chunks of few and many rows, greedy and sampled, at many lengths."""
    plans = []
    for count in range(SLOTS + 1):
        for length in (1, 2, 15, 16, 17, 33, 60):
            for sampling in ({}, {"temperature": 1.0, "seed": 3}, {"temperature": 1.0, "top_k": 5}):
                decodes = [sequence(length + n, length + n, **sampling) for n in range(count)]
                plans.append(StepPlan(1, decodes, [], NOTHING))
                if count < SLOTS:
                    start = 0 if length % 2 else LONGEST - 100
                    chunk = Chunk(sequence(start + length, start + length, **sampling), start, length, bool(length % 3))
                    plans.append(StepPlan(1, decodes, [chunk], NOTHING))
    return plans


def main() -> None:
    config = make_config(replace(TOY, layers=2, heads=8, kv_heads=2, size=64), qk_norm=True)
    compiled: dict[int, str] = {}
    kept = []  # an id is unique as long as its object lives

    def record(name: str, kernel: Any) -> None:
        kept.append(kernel)
        compiled.setdefault(id(kernel), name)

    with compiling_for(TARGETS["sm_90"], record):
        weights = make_weights(config, torch.bfloat16, META)
        pool = make_pool(config, 50, torch.bfloat16, META)
        limits = StepLimits(STEP_TOKENS, SLOTS, LONGEST, 16)
        executor = GpuExecutor(MetaDevice(), make_decoders(config, weights), pool, pool[:0], limits, (4, 2, 1))
        if "--cold" not in sys.argv:
            executor.warm_up()
        warm = dict(compiled)
        executor._returns.bring = lambda tokens: None  # type: ignore[assignment,method-assign] - there is no data
        for plan in steps():
            executor.launch(plan)
    print(f"compiled at load: {len(warm)}: {', '.join(sorted(set(warm.values())))}")
    later = [name for key, name in compiled.items() if key not in warm]
    print(f"compiled later: {len(later)}: {', '.join(sorted(later))}")


if __name__ == "__main__":
    main()
