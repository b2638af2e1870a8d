"""An executor without a model: the next token is a hash of every (token, position) read back through the block table.

Keys and values are replaced by the tokens themselves, written to and read from a pool of the real shape in blocks and
slots. Any wrong block, wrong cursor, reuse too early or mixed-up sequence changes the text, in microseconds per step.
"""

import hashlib

from backend.executor.base import StepResult
from backend.scheduler.plan import StepPlan, Work

VOCAB = 1000


def next_token(tokens: list[int]) -> int:
    """What the oracle model says after these tokens."""
    digest = hashlib.blake2b(b"".join(t.to_bytes(4, "little") for t in tokens), digest_size=4).digest()
    return int.from_bytes(digest, "little") % VOCAB


def lone_run(prompt: tuple[int, ...], max_tokens: int, end_ids: frozenset[int] = frozenset()) -> list[int]:
    """The output of a request that is alone in the world."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + max_tokens:
        tokens.append(next_token(tokens))
        if tokens[-1] in end_ids:
            break
    return tokens[len(prompt) :]


class Finished:
    def __init__(self, result: StepResult) -> None:
        self._result = result

    def collect(self) -> StepResult:
        return self._result


class OracleExecutor:
    """slots[block][offset] holds (token, position) as last written, or None."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.slots: list[list[tuple[int, int] | None]] = [[None] * block_size for _ in range(num_blocks)]
        self.plans: list[StepPlan] = []

    def launch(self, plan: StepPlan) -> Finished:
        self.plans.append(plan)
        for work in plan.work:
            self._write(work)
        return Finished({w.sequence.request.request_id: self._read(w) for w in plan.work if w.samples})

    def _write(self, work: Work) -> None:
        for position in range(work.start, work.start + work.num_tokens):
            block, offset = divmod(position, self.block_size)
            self.slots[work.sequence.blocks[block]][offset] = (work.sequence.tokens[position], position)

    def _read(self, work: Work) -> int:
        tokens = []
        for position in range(work.start + work.num_tokens):
            block, offset = divmod(position, self.block_size)
            slot = self.slots[work.sequence.blocks[block]][offset]
            assert slot is not None, "a slot was read before it was written"
            assert slot[1] == position, "a slot holds another position"
            tokens.append(slot[0])
        return next_token(tokens)
