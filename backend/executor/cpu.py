"""The CPU executor: the decoder and the sampler, one step at a time in the calling thread."""

from __future__ import annotations

import torch
from torch import Tensor

from backend.executor.base import StepResult
from backend.executor.step_inputs import build_inputs
from backend.model.decoder import Decoder
from backend.sampling.sampler import SamplingRow, sample
from backend.scheduler.plan import StepPlan


class FinishedStep:
    """A step that ran to its end in ``launch``."""

    def __init__(self, result: StepResult) -> None:
        self._result = result

    def collect(self) -> StepResult:
        """The tokens of the step."""
        return self._result


class CpuExecutor:
    """Owns the pool tensor ``[num_blocks, layers, 2, kv_heads, block_size, head_dim]`` and the decoder."""

    def __init__(self, decoder: Decoder, pool: Tensor) -> None:
        self._decoder = decoder
        self._pool = pool
        self._block_size = pool.shape[4]

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> FinishedStep:
        """Compute the plan and sample. Raises what the computation raises."""
        logits = self._decoder.forward(build_inputs(plan, self._block_size), self._pool)
        sampling = [work for work in plan.work if work.samples]
        rows = [SamplingRow(work.sequence.request.sampling, work.sequence.num_tokens) for work in sampling]
        tokens = sample(logits, rows)
        ids = [work.sequence.request.request_id for work in sampling]
        return FinishedStep(dict(zip(ids, tokens, strict=True)))
