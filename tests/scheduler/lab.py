"""A scheduler on the oracle model, one step at a time, on a clock that only steps move."""

from typing import Any

from backend.endings import FinishReason
from backend.kv.block_pool import BlockPool
from backend.kv.host_pool import HostPool
from backend.request import Sequence, State
from backend.scheduler.costs import PreemptionCosts
from backend.scheduler.plan import StepPlan, TokenOutput
from backend.scheduler.scheduler import RECOMPUTE_ONLY, Scheduler
from backend.scheduler.settings import SchedulerSettings
from tests.engine.engines import request
from tests.oracle import OracleExecutor, lone_run

ALWAYS_SWAP = PreemptionCosts(seconds_per_token=1.0, seconds_per_block=1.0, mode="swap")


class Lab:
    """``blocks`` usable blocks of ``block_size`` tokens. A step takes base + slope * tokens seconds."""

    def __init__(
        self,
        *,
        blocks: int = 100,
        slots: int = 8,
        step_tokens: int = 64,
        host_slots: int = 0,
        block_size: int = 4,
        costs: PreemptionCosts = RECOMPUTE_ONLY,
        base: float = 1.0,
        slope: float = 0.0,
        rule: type[Scheduler] = Scheduler,
        **settings: Any,
    ) -> None:
        settings = {"free_block_reserve": 0.0, "max_seq_len": 4000, **settings}
        made = SchedulerSettings(block_size=block_size, max_batch_size=slots, max_num_tokens=step_tokens, **settings)
        self.scheduler = rule(made, BlockPool(blocks + 1), HostPool(host_slots), costs)
        self.executor = OracleExecutor(blocks + 1, block_size, host_slots)
        self.now = 0.0
        self.outputs: list[TokenOutput] = []
        self.sequences: list[Sequence] = []
        self._base, self._slope = base, slope

    def add(self, prompt: int | tuple[int, ...], max_tokens: int, level: int = 2, **fields: Any) -> Sequence:
        sequence = self.scheduler.add(request(prompt, max_tokens, level, **{"arrived": self.now, **fields}))
        self.sequences.append(sequence)
        return sequence

    def say_preempted(self, waiting: Sequence, times: int) -> None:
        """Make a waiting sequence one that has been preempted so often."""
        self.scheduler.population.num_paused += (times > 0) - (waiting.num_preemptions > 0)
        waiting.num_preemptions = times

    def step(self) -> StepPlan:
        """Plan, compute and commit one step; ``outputs`` is what it brought."""
        self.outputs = [(s, None) for s in self.scheduler.expire(self.now)]
        plan = self.scheduler.schedule(self.now)
        tokens = [] if plan.empty else self.executor.launch(plan).collect()
        seconds = self._base + self._slope * plan.num_tokens
        self.now += seconds
        if not plan.empty:
            self.scheduler.finished(plan.step)
            self.scheduler.step_time.observe(plan.num_tokens, seconds)
        self.outputs += self.scheduler.commit(plan, tokens)
        self.scheduler.check_integrity()
        return plan

    def steps(self, count: int) -> list[StepPlan]:
        return [self.step() for _ in range(count)]

    def run(self, most_steps: int = 5000) -> list[StepPlan]:
        """Step until nothing is left; then the pool must be empty."""
        plans: list[StepPlan] = []
        while self.scheduler.has_work:
            assert len(plans) < most_steps, "something never ends"
            plans.append(self.step())
        self.scheduler.pool.check_empty()
        return plans

    def finish(self) -> None:
        """Run to the end; every text is to be the lone run's, ended by its length."""
        self.run()
        assert_lone(*self.sequences)


def assert_lone(*sequences: Sequence) -> None:
    for sequence in sequences:
        assert sequence.finish_reason is FinishReason.LENGTH
        assert list(sequence.output) == lone_run(sequence.request.prompt, sequence.request.sampling.max_tokens)


def preempted(*sequences: Sequence) -> list[bool]:
    """Which of them wait again."""
    return [s.state is State.WAITING and s.num_preemptions > 0 for s in sequences]


def untouched(*sequences: Sequence) -> bool:
    return all(s.num_preemptions == 0 and s.state is State.RUNNING for s in sequences)
