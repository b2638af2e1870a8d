"""Small engines on the oracle model, for tests."""

import itertools

from backend.engine import Engine
from backend.kv.block_pool import BlockPool
from backend.request import Request, Sequence
from backend.sampling_params import SamplingParams
from backend.scheduler.scheduler import Scheduler
from tests.oracle import OracleExecutor

BLOCK = 4
_numbers = itertools.count(1)


def oracle_engine(
    *, blocks: int = 40, slots: int = 4, step_tokens: int = 16, max_seq_len: int = 200
) -> tuple[Engine, OracleExecutor]:
    pool = BlockPool(blocks + 1)
    scheduler = Scheduler(
        pool, block_size=BLOCK, max_batch_size=slots, max_num_tokens=step_tokens, max_seq_len=max_seq_len
    )
    executor = OracleExecutor(blocks + 1, BLOCK)
    return Engine(scheduler, executor), executor


def request(prompt: int | tuple[int, ...], max_tokens: int, level: int = 2, **sampling: object) -> Request:
    number = next(_numbers)
    ids = prompt if isinstance(prompt, tuple) else tuple((number * 7 + 13 * n) % 1000 for n in range(prompt))
    params = SamplingParams(max_tokens=max_tokens, **sampling)  # type: ignore[arg-type]
    return Request(request_id=number, prompt=ids, sampling=params, level=level, arrival=number)


def run(engine: Engine, most_steps: int = 10_000) -> int:
    """Step until nothing is left, checking the books after each step; the number of steps."""
    for step in range(most_steps):
        if not engine.has_work:
            return step
        engine.step()
        engine.scheduler.check_integrity()
    raise AssertionError(f"still work after {most_steps} steps")


def idle(engine: Engine) -> bool:
    scheduler = engine.scheduler
    return not scheduler.running and not len(scheduler.waiting) and scheduler.pool.num_free == scheduler.pool.num_usable


def outputs(sequences: list[Sequence]) -> list[list[int]]:
    return [list(s.output) for s in sequences]
