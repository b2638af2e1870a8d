"""Whatever happens, in whatever order: every text equals the lone run, every book adds up, nothing is left behind.

A hypothesis state machine over the real engine and scheduler on the oracle model: arrivals of any level, tenant,
salt, shared prefix and number of sequences; cancellations, deadlines, failing steps; small pools and host pools;
recompute and swap; both policies; steps that are ended early.
"""

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from backend.endings import FinishReason
from backend.engine import StepFailedError
from backend.request import Sequence, State
from tests.engine.engines import BLOCK, Clock, oracle_engine, request
from tests.oracle import OracleExecutor, lone_run

PREFIXES = [tuple((n * 31 + k) % 997 for n in range(24)) for k in range(2)]
EXAMPLES = 2000 if os.environ.get("TESTS_NIGHTLY") else 100


class EngineMachine(RuleBasedStateMachine):
    """The world around one engine."""

    @initialize(
        blocks=st.integers(10, 30),
        slots=st.integers(1, 5),
        step_tokens=st.integers(5, 24),
        host_slots=st.sampled_from([0, 3, 40]),
        mode=st.sampled_from(["recompute", "swap", "auto"]),
        overlap=st.booleans(),
        ahead=st.booleans(),
        policy=st.booleans(),
        cap=st.integers(0, 3),
        reserve=st.sampled_from([0.0, 0.1]),
        ageing=st.sampled_from([0.0, 3.0]),
        cache=st.booleans(),
        interruptible=st.booleans(),
    )
    def start(
        self, policy: bool, cap: int, reserve: float, ageing: float, cache: bool, interruptible: bool, **shape: Any
    ) -> None:
        self.clock = Clock()
        self.interruptible = interruptible and not shape["ahead"]
        self.engine, self.executor = oracle_engine(
            clock=self.clock,
            guaranteed_no_evict=policy,
            preemption_cap=cap,
            free_block_reserve=reserve,
            ageing_seconds=ageing,
            prefix_cache=cache,
            interruptible=self.interruptible,
            max_step_seconds=0.001,
            **shape,
        )
        self.pool_tokens = shape["blocks"] * BLOCK
        self.sequences: list[Sequence] = []

    @rule(
        prompt=st.integers(1, 30),
        output=st.integers(1, 14),
        level=st.integers(1, 3),
        tenant=st.sampled_from(["a", "b"]),
        prefix=st.sampled_from([None, 0, 1]),
        salt=st.sampled_from(["", "x"]),
        patience=st.none() | st.integers(1, 40),
        copies=st.sampled_from([0, 0, 0, 2]),
    )
    def arrive(
        self,
        prompt: int,
        output: int,
        level: int,
        tenant: str,
        prefix: int | None,
        salt: str,
        patience: int | None,
        copies: int,
    ) -> None:
        asked: int | tuple[int, ...] = prompt if prefix is None else (*PREFIXES[prefix], *range(prompt % 7 + 1))
        length = len(asked) if isinstance(asked, tuple) else asked
        if length + output - 1 > self.pool_tokens:
            return
        if copies and length + output - 1 <= self.pool_tokens:
            self.family(asked, output, level, salt, copies)
            return
        if self.interruptible:
            self.engine.interrupt(level)
        deadline = None if patience is None else self.clock.now + patience
        made = request(asked, output, level, tenant=tenant, salt=salt, deadline=deadline, arrived=self.clock.now)
        self.sequences.append(self.engine.add(made))

    def family(self, asked: int | tuple[int, ...], output: int, level: int, salt: str, copies: int) -> None:
        """Several sequences of one prompt; on the oracle model all say the same."""
        first = request(asked, output, level, salt=salt, arrived=self.clock.now)
        self.sequences.append(self.engine.add(first))
        for _ in range(copies):
            more = request(first.prompt, output, level, salt=salt, arrived=self.clock.now, leader=first.request_id)
            self.sequences.append(self.engine.add(more))

    @rule(n=st.integers(1, 6))
    def steps(self, n: int) -> None:
        for _ in range(n):
            self.engine.step()
            self.engine.scheduler.check_integrity()
            self.clock.now += 1.0

    @rule(low=st.integers(2, 30), urgent=st.integers(1, 9), output=st.integers(1, 9))
    def overtake(self, low: int, urgent: int, output: int) -> None:
        """A prompt's step is under way when someone more urgent than anyone arrives."""
        self.sequences.append(self.engine.add(request(low, output, 3, arrived=self.clock.now)))
        self.steps(1)
        if self.interruptible:
            self.engine.interrupt(1)
        self.sequences.append(self.engine.add(request(urgent, output, 1, arrived=self.clock.now)))
        self.steps(1)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.sequences:
            self.engine.cancel(data.draw(st.sampled_from(self.sequences)))

    @rule(place=st.sampled_from(["run", "launch"]))
    def fail_a_step(self, place: str) -> None:
        works = getattr(self.executor, place)
        setattr(self.executor, place, lambda *_: 1 / 0)
        try:
            self.engine.step()
            self.engine.wait()
        except StepFailedError as error:
            assert all(s.finish_reason is FinishReason.ERROR for s in error.sequences)
        setattr(self.executor, place, works)

    @invariant()
    def books_add_up(self) -> None:
        if hasattr(self, "engine"):
            self.engine.scheduler.check_integrity()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        for _ in range(4000):
            if not self.engine.has_work:
                break
            self.engine.step()
            self.engine.scheduler.check_integrity()
            self.clock.now += 1.0
        assert not self.engine.has_work, "something never ends"
        for sequence in self.sequences:
            check_text(sequence)
        pool = self.engine.scheduler.pool
        assert pool.num_available == pool.num_usable
        assert self.engine.scheduler.residency.host.num_free + len(self.engine.scheduler.residency.host._parked) == len(
            self.executor.host
        )


def check_text(sequence: Sequence) -> None:
    """Ended once, for a reason, with the tokens of the lone run as far as it came."""
    expected = lone_run(sequence.request.prompt, sequence.request.sampling.max_tokens)
    assert sequence.state is State.FINISHED
    assert list(sequence.output) == expected[: sequence.num_output]
    if sequence.finish_reason is FinishReason.LENGTH:
        assert sequence.num_output == len(expected)
    if sequence.finish_reason is FinishReason.TIMEOUT:
        assert sequence.request.deadline is not None


TestAnyHistory = EngineMachine.TestCase
TestAnyHistory.settings = settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None)


def test_the_machine_runs_on_the_real_parts() -> None:
    engine, executor = oracle_engine()
    assert isinstance(executor, OracleExecutor)
    assert type(engine.scheduler).__module__ == "backend.scheduler.scheduler"
