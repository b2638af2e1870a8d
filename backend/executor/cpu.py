"""The CPU executor: decoder and sampler in a thread of their own; the engine's thread does its part meanwhile.

engine thread   | commit N-1, deliver |   wait    | schedule N+1, launch | commit N, deliver | ...
compute thread  | ---------- step N ------------- |       | ---------- step N+1 ------------ ...
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from backend.executor.block_copier import BlockCopier
from backend.executor.interruption import Interruption
from backend.executor.step_inputs import Batch, build_batch
from backend.model.batch import StepInputs
from backend.request import Sequence
from backend.sampling.row_state import RowState
from backend.sampling.row_states import RowStates
from backend.sampling.sampler import Sampled, SamplingRow, SpecialRow, sample_with
from backend.scheduler.plan import BlockCopies, Chunk, StepPlan
from backend.token_detail import TokenDetail

Forward = Callable[[StepInputs], Tensor]
"""A step's inputs -> float32 logits ``[R, vocab_size]`` of its logit rows."""


class _Result(NamedTuple):
    """What a step has brought. context: see ``StepHandle.context``."""

    sampled: Sampled
    context: Mapping[int, bytes]


_NOTHING = _Result(Sampled([], {}), {})


class RunningStep:
    """A step in the compute thread."""

    def __init__(self, future: Future[_Result]) -> None:
        self._future = future

    def collect(self) -> SequenceOf[int]:
        """Wait for the step's tokens."""
        return self._future.result().sampled.tokens

    def details(self) -> Mapping[int, TokenDetail]:
        """Of the tokens whose sequences asked for them."""
        return self._future.result().sampled.details

    def context(self) -> Mapping[int, bytes]:
        """Of the positions of prompts that were asked for, by chunk."""
        return self._future.result().context


class CpuExecutor:
    """Owns decoder, the pool's blocks ``[num_blocks, ...]`` and the host's copy space."""

    def __init__(
        self,
        forward: Forward,
        blocks: Tensor,
        block_size: int,
        host: Tensor,
        prepare_thread: Callable[[], None] = lambda: None,
        interruption: Interruption | None = None,
    ) -> None:
        """forward: of a decoder over the pool. host: ``[host slots, *blocks.shape[1:]]``.

        prepare_thread: called first in the thread that computes. interruption: the one that forward looks at.
        """
        self._forward = forward
        self._interruption = interruption or Interruption()
        self._block_size = block_size
        self._copier = BlockCopier(blocks, host)
        self._last_tokens: dict[int, int] = {}
        self._states = RowStates()
        self._thread = ThreadPoolExecutor(1, "compute", prepare_thread)

    def launch(self, plan: StepPlan) -> RunningStep:
        """Lay the batch out here, compute it in the compute thread, after the steps launched before."""
        batch = build_batch(plan, self._block_size) if plan.sequences else None
        works = [work for work in plan.works() if work.samples]
        rows = [SamplingRow(work.sequence.request.sampling, work.start + work.num_tokens) for work in works]
        ids = [work.sequence.request.request_id for work in works]
        special = self._special_rows(works)
        # Here, not where it is computed: someone may arrive before that.
        short = plan.num_tokens == len(plan.sequences)  # a token for each, as decodes and beams have it
        most_urgent = None if short else min(sequence.request.level for sequence in plan.sequences)
        self._interruption.begin(most_urgent)
        return RunningStep(self._thread.submit(self._run, plan.copies, batch, rows, ids, special))

    def _special_rows(self, works: list[Chunk]) -> list[SpecialRow]:
        """The states are looked up in this thread and changed in the other, in the order of the steps."""
        special = [
            SpecialRow(place, self._state(work.sequence, work.start + work.num_tokens))
            for place, work in enumerate(works)
            if work.sequence.request.sampling.special
        ]
        if special:
            self._states.forget(len(special))
        return special

    def _state(self, sequence: Sequence, position: int) -> RowState:
        """Of a beam made anew at each step, as the search decides what it says, not the sampler."""
        beams = sequence.request.sampling.beams
        return self._states.get(sequence, position) if beams is None else RowState(sequence, position)

    @torch.inference_mode()
    def _run(
        self,
        copies: BlockCopies,
        batch: Batch | None,
        rows: list[SamplingRow],
        ids: list[int],
        special: list[SpecialRow],
    ) -> _Result:
        self._copier.run(copies)
        if batch is None:
            return _NOTHING
        try:
            logits = self._forward(batch.fill(self._last_tokens))
        finally:
            self._interruption.end()
        # Before the sampler, which changes its rows.
        context = {chunk: logits[first : first + count].numpy().tobytes() for chunk, first, count in batch.context}
        if batch.sampled is not None:
            logits = logits[batch.sampled]
        sampled = sample_with(logits, rows, special) if rows else Sampled([], {})
        # A sequence that got no token may be planned once more; that step reads some token, and nobody its result.
        known = [max(token, 0) for token in sampled.tokens] if special else sampled.tokens
        self._last_tokens = dict(zip(ids, known, strict=True))
        return _Result(sampled, context)

    def seconds_per_token(self, num_tokens: int) -> float:
        """Measured time of computing a prompt, per token, on a batch of so many tokens in the null block."""
        inputs = _null_batch(num_tokens)

        def run() -> float:
            start = time.perf_counter()
            self._forward(inputs)
            return (time.perf_counter() - start) / num_tokens

        return self._thread.submit(run).result()

    def seconds_per_block(self) -> float:
        """Measured time of copying one block between pool and host."""
        return self._copier.seconds_per_block()

    def interrupt(self, level: int) -> None:
        """As ``InterruptibleExecutor.interrupt``; between two layers."""
        self._interruption.interrupt(level)

    def close(self) -> None:
        """End the compute thread after the steps launched so far."""
        self._thread.shutdown()


def _null_batch(num_tokens: int) -> StepInputs:
    """One sequence of so many tokens, written to and read from the null block."""
    return StepInputs(
        token_ids=torch.zeros(num_tokens, dtype=torch.int64),
        positions=torch.arange(num_tokens),
        query_start=torch.tensor([0, num_tokens], dtype=torch.int32),
        kv_lengths=torch.tensor([num_tokens], dtype=torch.int32),
        block_tables=torch.zeros((1, num_tokens), dtype=torch.int32),
        slot_mapping=torch.zeros(num_tokens, dtype=torch.int64),
        logit_rows=torch.tensor([num_tokens - 1]),
    )
