"""Who runs in this step. State in, a frozen StepPlan out; no torch, no numpy.

A sequence is waiting, running or gone. One pass per step: running sequences first (decode tokens, then prompt chunks,
each in order of level and arrival), then admission of the waiting in the same order.

Policy: guaranteed_no_evict. A sequence is admitted only when the pool can hold it to its end beside what the running
ones can still come to need, so that growth never fails and nothing has to be taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from backend.errors import InvalidRequest
from backend.kv.block_pool import BlockPool, PoolIntegrityError
from backend.kv.block_table import BlockTables, blocks_for
from backend.request import FinishReason, Request, Sequence
from backend.scheduler.budget import StepBudget
from backend.scheduler.plan import StepPlan, TokenOutput, Work
from backend.scheduler.waiting_queue import WaitingQueue

_ORDER = attrgetter("order")


class Scheduler:
    """Owns the waiting queue, the running set, and every sequence's blocks and cursor.

    max_batch_size: slots. max_num_tokens: token budget of a step. max_seq_len: prompt + output of one sequence.
    """

    def __init__(
        self, pool: BlockPool, *, block_size: int, max_batch_size: int, max_num_tokens: int, max_seq_len: int
    ) -> None:
        self.tables = BlockTables(pool, block_size)
        self.pool = pool
        self.max_batch_size = max_batch_size
        self.max_num_tokens = max_num_tokens
        self.max_seq_len = max_seq_len
        self.waiting = WaitingQueue()
        self.running: list[Sequence] = []
        self._step = 0
        self._reserved = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would find anything to do."""
        return bool(self.running or len(self.waiting))

    def check_fits(self, request: Request) -> None:
        """Raise InvalidRequest, with what is needed and what there is, if the request could never run."""
        prompt, output = len(request.prompt), request.sampling.max_tokens
        asked = f"needs {prompt + output} tokens (prompt {prompt} + max_tokens {output})"
        if prompt + output > self.max_seq_len:
            raise InvalidRequest("max_tokens", f"{asked}, max_seq_len is {self.max_seq_len}")
        available = self.pool.num_usable * self.tables.block_size
        if request.max_tokens_held > available:
            raise InvalidRequest("max_tokens", f"{asked}, the KV pool holds {available} tokens")

    def add(self, request: Request) -> Sequence:
        """Queue a request. Raises InvalidRequest if it could never run; nothing is kept of it then."""
        self.check_fits(request)
        sequence = Sequence(request)
        self.waiting.push(sequence)
        return sequence

    def schedule(self) -> StepPlan:
        """Decide one step: who computes how many tokens. Blocks are allocated here, before anything is launched."""
        self._step += 1
        budget = StepBudget(self.max_num_tokens)
        work: list[Work] = []
        decoding = [s for s in self.running if s.num_uncomputed == 1]
        prefilling = [s for s in self.running if s.num_uncomputed > 1]
        for sequence in sorted(decoding, key=_ORDER) + sorted(prefilling, key=_ORDER):
            self._plan(sequence, budget, work)
        self._admit(budget, work)
        return StepPlan(self._step, tuple(work))

    def _admit(self, budget: StepBudget, work: list[Work]) -> None:
        """Admit in order while slot, pool and budget last. The head is never passed over: the large do not starve."""
        while budget.tokens and len(self.running) < self.max_batch_size:
            sequence = self.waiting.head()
            if sequence is None or self._blocks_to_the_end(sequence) > self.pool.num_free - self._reserved:
                return
            self.running.append(self.waiting.pop())
            self._reserved += self._blocks_to_the_end(sequence)
            self._plan(sequence, budget, work)

    def _blocks_to_the_end(self, sequence: Sequence) -> int:
        """Blocks the sequence can still come to need beyond those it holds."""
        return blocks_for(sequence.request.max_tokens_held, self.tables.block_size) - len(sequence.blocks)

    def _plan(self, sequence: Sequence, budget: StepBudget, work: list[Work]) -> None:
        count = budget.take(sequence.num_uncomputed)
        if not count:
            return
        start, end = sequence.num_computed, sequence.num_computed + count
        self._reserved -= self.tables.missing(sequence, end)
        self.tables.grow(sequence, end)
        work.append(Work(sequence, start, count, end == sequence.num_tokens))

    def commit(self, plan: StepPlan, tokens: Mapping[int, int]) -> list[TokenOutput]:
        """Take in a finished step: advance cursors, append tokens, end sequences and free their blocks.

        tokens: request id -> the token sampled in this step. Sequences gone since the launch are passed over.
        """
        self.pool.complete(plan.step)
        outputs = []
        for work in plan.work:
            sequence = work.sequence
            if sequence.finish_reason is not None:
                continue
            sequence.num_computed = work.start + work.num_tokens
            if work.samples:
                outputs.append(self._advance(sequence, tokens[sequence.request.request_id]))
        return outputs

    def _advance(self, sequence: Sequence, token: int) -> TokenOutput:
        reason = sequence.append(token)
        if reason is not None:
            self.end(sequence, reason)
        return TokenOutput(sequence, token, reason is not None)

    def end(self, sequence: Sequence, reason: FinishReason) -> bool:
        """End a sequence in whatever state it is; False if it had ended before. Safe to call any number of times."""
        if sequence.finish_reason is not None:
            return False
        if not self.waiting.remove(sequence):
            self._reserved -= self._blocks_to_the_end(sequence)
            self.running.remove(sequence)
        self.tables.release(sequence, fence=self._step)
        sequence.finish_reason = reason
        return True

    def check_integrity(self) -> None:
        """Raise PoolIntegrityError unless pool, tables, reservation and sets agree. Tests call it after every step."""
        self.pool.check_integrity(s.blocks for s in self.running)
        if self._reserved != sum(self._blocks_to_the_end(s) for s in self.running):
            raise PoolIntegrityError("the reservation differs from what the running sequences can still need")
        if len(self.running) > self.max_batch_size:
            raise PoolIntegrityError("more sequences run than there are slots")
        if any(s.finish_reason is not None or s.num_uncomputed < 1 for s in self.running):
            raise PoolIntegrityError("a finished sequence is still running")
        if any(s.blocks for s in self.waiting):
            raise PoolIntegrityError("a waiting sequence holds blocks")
