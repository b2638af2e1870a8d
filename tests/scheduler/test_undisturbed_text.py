"""A preempted request's tokens are what they would have been: wherever and however often it is taken."""

from typing import Any

import pytest

from backend.endings import FinishReason
from backend.engine import Engine
from backend.request import Sequence, State
from tests.engine.engines import BLOCK, idle, oracle_engine, request, run
from tests.oracle import OracleExecutor, lone_run
from tests.scheduler.lab import Lab

MODES = pytest.mark.parametrize("mode", ["recompute", "swap"])
OVERLAP = pytest.mark.parametrize("overlap", [False, True])


class Watch:
    """A stop watch that only writes down what it is shown."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def push(self, token_id: int) -> bool:
        self.seen.append(token_id)
        return False


def one_slot(mode: Any, overlap: bool, **settings: Any) -> tuple[Engine, OracleExecutor]:
    return oracle_engine(slots=1, host_slots=50, mode=mode, overlap=overlap, step_tokens=8, blocks=60, **settings)


def check(low: Sequence, watch: Watch, times: int) -> None:
    assert low.num_preemptions == times
    assert list(low.output) == lone_run(low.request.prompt, low.request.sampling.max_tokens)
    assert watch.seen == list(low.output)
    assert low.finish_reason is FinishReason.LENGTH


# Without overlap a prompt's last chunk and the first token are one step: there is no "none yet" to preempt at.
PLACES = [(at, overlap) for overlap in (True, False) for at in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 11) if at or overlap]


@MODES
@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize(("at", "overlap"), PLACES)
def test_preempted_once_at_any_output_token(at: int, cache: bool, mode: Any, overlap: bool) -> None:
    engine, _ = one_slot(mode, overlap, prefix_cache=cache)
    watch = Watch()
    low = engine.add(request(7, 12, 3, stop_watch=watch))
    engine.step()
    while low.num_output < at:
        engine.step()
    assert low.num_output == at
    urgent = engine.add(request(5, 2, 1))
    run(engine)
    check(low, watch, times=1)
    assert list(urgent.output) == lone_run(urgent.request.prompt, 2)
    assert bool(engine.scheduler.residency.swapped_blocks) == (mode == "swap")
    assert idle(engine)


@OVERLAP
@MODES
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_preempted_inside_a_chunked_prompt(chunks: int, mode: Any, overlap: bool) -> None:
    engine, _ = one_slot(mode, overlap, prefix_cache=False)
    watch = Watch()
    low = engine.add(request(29, 5, 3, stop_watch=watch))
    for _ in range(chunks):
        engine.step()
    assert low.num_computed == 8 * chunks
    urgent = engine.add(request(5, 2, 1))
    run(engine)
    check(low, watch, times=1)
    assert list(urgent.output) == lone_run(urgent.request.prompt, 2)


@OVERLAP
@MODES
@pytest.mark.parametrize("times", [2, 4])
def test_preempted_again_each_time_it_has_come_back_before_it_got_any_further(
    times: int, mode: Any, overlap: bool
) -> None:
    engine, _ = one_slot(mode, overlap, preemption_cap=2)
    watch = Watch()
    low = engine.add(request(21, 9, 3, stop_watch=watch))
    engine.step()
    for _ in range(times):
        engine.add(request(5, 2, 1))
        while low.state is State.RUNNING:
            engine.step()
        while low.state is State.WAITING:
            engine.step()
    run(engine)
    check(low, watch, times)


@OVERLAP
@MODES
def test_preempted_before_every_single_token(mode: Any, overlap: bool) -> None:
    engine, _ = one_slot(mode, overlap, preemption_cap=3)
    watch = Watch()
    low = engine.add(request(6, 10, 3, stop_watch=watch))
    known = -1
    while low.state is not State.FINISHED:
        if low.num_output > known and low.state is State.RUNNING:
            known = low.num_output
            engine.add(request(3, 1, 1))
        engine.step()
        engine.scheduler.check_integrity()
    run(engine)
    check(low, watch, low.num_preemptions)
    assert low.num_preemptions >= 4


@MODES
def test_eos_and_stop_ids_end_a_preempted_request_where_they_would_have(mode: Any) -> None:
    engine, _ = one_slot(mode, overlap=True)
    expected = lone_run((5, 6, 7), 12)
    for name, reason in (("end_ids", FinishReason.EOS), ("stop_ids", FinishReason.STOP)):
        low = engine.add(request((5, 6, 7), 12, 3, **{name: frozenset({expected[8]})}))
        while low.num_output < 7:
            engine.step()
        engine.add(request(5, 2, 1))
        run(engine)
        assert (low.num_preemptions, low.finish_reason) == (1, reason)
        assert list(low.output) == expected[: expected.index(expected[8]) + 1]


# --- a step under way (case 50)


def test_the_late_token_of_a_preempted_sequence_is_kept_and_handed_out_once() -> None:
    engine, executor = one_slot("recompute", overlap=True)
    low = engine.add(request(7, 9, 3))
    for _ in range(4):
        engine.step()
    known = low.num_output
    engine.add(request(5, 3, 1))
    outputs = engine.step()
    # The step planned here has preempted it; the one before, which it was part of, brings its token all the same.
    assert (low.state, low.num_output) == (State.WAITING, known + 1)
    assert [token for s, token in outputs if s is low] == [lone_run(low.request.prompt, 9)[known]]
    given = [token for s, token in outputs if s is low]
    while engine.has_work:
        given += [token for s, token in engine.step() if s is low]
    assert given == lone_run(low.request.prompt, 9)[known:]
    # It resumed with all it had: prompt and tokens, the late one with them, were computed anew without a gap.
    again = [c for plan in executor.plans for c in plan.chunks if c.sequence is low][1:]
    assert sum(c.num_tokens for c in again) == 7 + known + 1 - again[0].start


def test_a_preempted_sequence_may_end_by_its_late_token() -> None:
    engine, _ = one_slot("swap", overlap=True)
    prompt = (4, 5, 6, 7, 8, 9)
    low = engine.add(request(prompt, 9, 3, end_ids=frozenset({lone_run(prompt, 9)[2]})))
    while low.num_output < 2:
        engine.step()
    engine.add(request(5, 3, 1))
    engine.step()
    assert low.num_preemptions == 1
    assert low.finish_reason is FinishReason.EOS
    run(engine)
    assert list(low.output) == lone_run(prompt, 9)[:3]
    assert engine.scheduler.residency.swapped_blocks == 2  # its copy was for nothing, and its host slots are back:
    assert engine.scheduler.residency.host.num_free == 50
    assert idle(engine)


def test_the_late_token_of_a_cancelled_sequence_is_dropped() -> None:
    engine, _ = one_slot("recompute", overlap=True)
    sequence = engine.add(request(7, 9))
    for _ in range(4):
        engine.step()
    known = list(sequence.output)
    engine.cancel(sequence)
    outputs = [o for _ in range(3) for o in engine.step()]
    assert outputs == []
    assert list(sequence.output) == known
    assert idle(engine)


def test_a_step_with_nothing_in_it_is_not_launched() -> None:
    engine, executor = one_slot("recompute", overlap=True)
    sequence = engine.add(request(7, 9))
    engine.step()
    engine.cancel(sequence)
    launched = len(executor.plans)
    assert engine.step() == []
    assert engine.step() == []
    assert len(executor.plans) == launched
    assert not any(plan.empty for plan in executor.plans)


def test_others_tokens_are_not_mixed_up_when_one_of_their_step_is_cancelled() -> None:
    lab = Lab()
    first, gone, last = (lab.add(5, 6) for _ in range(3))
    lab.steps(2)
    plan = lab.scheduler.schedule()
    tokens = lab.executor.launch(plan).collect()
    lab.scheduler.end(gone, FinishReason.CANCELLED)
    lab.scheduler.finished(plan.step)
    outputs = lab.scheduler.commit(plan, tokens)
    assert [s for s, _ in outputs] == [first, last]
    lab.run()
    for sequence in (first, last):
        assert list(sequence.output) == lone_run(sequence.request.prompt, 6)
