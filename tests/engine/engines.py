"""Small engines on the oracle model, for tests."""

import itertools
from pathlib import Path
from typing import Any

from backend.config import EngineConfig
from backend.endings import FinishReason
from backend.engine import Engine
from backend.engine_builder import build_engine
from backend.kv.block_pool import BlockPool
from backend.kv.host_pool import HostPool
from backend.request import Request, Sequence
from backend.sampling_params import SamplingParams
from backend.scheduler.costs import PreemptionCosts
from backend.scheduler.scheduler import Scheduler
from backend.scheduler.settings import SchedulerSettings
from tests.oracle import OracleExecutor, lone_run

BLOCK = 4
_numbers = itertools.count(1)


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def oracle_engine(
    *,
    blocks: int = 40,
    slots: int = 4,
    step_tokens: int = 16,
    max_seq_len: int = 200,
    host_slots: int = 0,
    mode: Any = "recompute",
    overlap: bool = True,
    ahead: bool = False,
    clock: Clock | None = None,
    **settings: Any,
) -> tuple[Engine, OracleExecutor]:
    """An engine whose pool has ``blocks`` usable blocks of four tokens. settings: of SchedulerSettings."""
    settings = {"free_block_reserve": 0.0, **settings}
    made = SchedulerSettings(
        block_size=BLOCK, max_batch_size=slots, max_num_tokens=step_tokens, max_seq_len=max_seq_len, **settings
    )
    costs = PreemptionCosts(seconds_per_token=1.0, seconds_per_block=1.0, mode=mode)
    scheduler = Scheduler(made, BlockPool(blocks + 1), HostPool(host_slots), costs)
    executor = OracleExecutor(blocks + 1, BLOCK, host_slots)
    return Engine(scheduler, executor, overlap=overlap, ahead=ahead, clock=clock or Clock()), executor


def small_engine(directory: Path, **knobs: Any) -> Engine:
    """The real thing on a small model, in blocks and chunks small enough that a short prompt has several."""
    config = EngineConfig(
        model_dir=str(directory),
        **{
            "max_num_tokens": 16,
            "tokens_per_block": 8,
            "max_tokens_in_paged_kv_cache": 1024,
            "max_step_ms": 0.0,
            "weight_precision": "float32",
            "num_threads": 1,
            **knobs,
        },
    )
    return build_engine(config, progress=False).engine


def narrow_engine(directory: Path, mode: str, max_batch_size: int = 1, **knobs: Any) -> Engine:
    """A small engine whose slots an urgent request takes; what it preempts is swapped out, or recomputed: mode."""
    host = 1 << 24 if mode == "swap" else 0
    knobs = {"enable_kv_cache_reuse": False, **knobs}
    return small_engine(
        directory, max_batch_size=max_batch_size, preemption_mode=mode, kv_cache_host_memory_bytes=host, **knobs
    )


def request(prompt: int | tuple[int, ...], max_tokens: int, level: int = 2, **fields: Any) -> Request:
    """prompt: its ids, or how many; these differ from request to request."""
    number = next(_numbers)
    ids = prompt if isinstance(prompt, tuple) else tuple((number * 7 + 13 * n) % 1000 for n in range(prompt))
    names = ("tenant", "salt", "deadline", "arrived", "stop_watch", "leader", "beam_watch")
    own = {name: fields.pop(name) for name in names if name in fields}
    params = SamplingParams(max_tokens=max_tokens, **fields)
    return Request(request_id=number, prompt=ids, sampling=params, level=level, arrival=number, **own)


def run(engine: Engine, most_steps: int = 10_000) -> int:
    """Step until nothing is left, checking the books after each step; the number of steps."""
    for step in range(most_steps):
        if not engine.has_work:
            return step
        engine.step()
        engine.scheduler.check_integrity()
    raise AssertionError(f"still work after {most_steps} steps")


def idle(engine: Engine) -> bool:
    pool = engine.scheduler.pool
    return not engine.has_work and pool.num_available == pool.num_usable


def finish(engine: Engine, *sequences: Sequence) -> list[list[int]]:
    """Step until nothing is left and every block is back; what the sequences have said."""
    run(engine)
    assert idle(engine)
    return outputs(list(sequences))


def preempted_twice(engine: Engine, low: Sequence, at: int, **urgent: Any) -> Sequence:
    """Run to its end a sequence that loses the one slot at this output token, and again three tokens later.

    urgent: what those who take it ask of sampling.
    """
    for target in (at, at + 3):
        while low.num_output < target or low.num_computed < 16:
            engine.step()
        engine.add(request((5, 6, 7), 2, level=1, **urgent))
        engine.step()
        engine.step()
    finish(engine, low)
    return low


def outputs(sequences: list[Sequence]) -> list[list[int]]:
    return [list(s.output) for s in sequences]


def check_lone_runs(sequences: list[Sequence]) -> None:
    """Each has all that it would have said alone; a cancelled one the beginning of it."""
    for sequence in sequences:
        expected = lone_run(sequence.request.prompt, sequence.request.sampling.max_tokens)
        if sequence.finish_reason is FinishReason.CANCELLED:
            assert list(sequence.output) == expected[: sequence.num_output]
        else:
            assert sequence.finish_reason is FinishReason.LENGTH
            assert list(sequence.output) == expected
