"""A deadline counts from arrival: dropped without running, or ended while running with what there is."""

import gc

import pytest

from backend.endings import FinishReason
from backend.engine import StepFailedError
from backend.request import Sequence, State
from tests.engine.engines import Clock, idle, oracle_engine, request
from tests.oracle import lone_run
from tests.scheduler.lab import Lab, assert_lone


def test_what_expires_while_it_waits_is_dropped_without_running() -> None:
    lab = Lab(slots=1)
    first = lab.add(3, 10)
    late, patient = lab.add(3, 2, deadline=4.0), lab.add(3, 2, deadline=100.0)
    while late.state is not State.FINISHED:
        lab.step()
    assert lab.now - 1.0 == 4.0  # found at the beginning of that step
    assert [output for output in lab.outputs if output[1] is None] == [(late, None)]
    assert late.finish_reason is FinishReason.TIMEOUT
    plans = lab.run()
    assert all(late not in plan.sequences for plan in (*lab.executor.plans, *plans))
    assert late.num_output == 0
    assert_lone(first, patient)


@pytest.mark.parametrize("overlap", [False, True])
def test_what_expires_while_it_runs_ends_with_what_it_has(overlap: bool) -> None:
    clock = Clock()
    engine, executor = oracle_engine(overlap=overlap, clock=clock)
    late, other = engine.add(request(6, 50, deadline=5.0)), engine.add(request(6, 9))
    given = []
    while engine.has_work:
        outputs = engine.step()
        given += [token for s, token in outputs if s is late]
        engine.scheduler.check_integrity()
        clock.now += 1.0
    assert late.finish_reason is FinishReason.TIMEOUT
    assert given[-1] is None
    assert given[:-1] == list(late.output) == lone_run(late.request.prompt, 50)[: late.num_output]
    assert late.num_output == (4 if overlap else 5)
    assert sum(late in plan.sequences for plan in executor.plans) == 5
    assert_lone(other)
    assert idle(engine)


@pytest.mark.parametrize("patience", [0.0, -1.0, -1e18])
def test_no_time_at_all_means_no_run_at_all(patience: float) -> None:
    clock = Clock()
    clock.now = 7.0
    engine, executor = oracle_engine(clock=clock)
    hopeless = engine.add(request(6, 5, deadline=7.0 + patience))
    outputs = engine.step()
    assert outputs == [(hopeless, None)]
    assert hopeless.finish_reason is FinishReason.TIMEOUT
    assert executor.plans == []
    assert idle(engine)


@pytest.mark.parametrize("deadline", [1e18, float("inf")])
def test_a_huge_deadline_is_none(deadline: float) -> None:
    lab = Lab()
    sequence = lab.add(6, 30, deadline=deadline)
    lab.finish()
    assert sequence.finish_reason is FinishReason.LENGTH


def test_the_deadline_is_the_first_instant_that_is_too_late() -> None:
    lab = Lab(slots=1)
    lab.add(3, 10, 1)
    before, at = lab.add(3, 2, deadline=4.5), lab.add(3, 2, deadline=4.0)
    lab.steps(4)
    assert (before.state, at.state) == (State.WAITING, State.WAITING)
    lab.step()
    assert (before.state, at.state) == (State.WAITING, State.FINISHED)
    lab.run()


def test_many_deadlines_end_each_in_its_turn_and_each_once() -> None:
    lab = Lab(slots=1, base=1.0)
    lab.add(3, 30, 1)
    late = {lab.add(3, 2, 3, deadline=float(when)): when for when in (9, 3, 12, 5, 3, 20)}
    ended: list[tuple[Sequence, float]] = []
    while lab.scheduler.has_work:
        began = lab.now
        lab.step()
        ended += [(s, began) for s, token in lab.outputs if token is None]
    assert sorted(when for _, when in ended) == [3, 3, 5, 9, 12, 20]
    assert all(late[sequence] == when for sequence, when in ended)


def test_a_deadline_after_the_end_changes_nothing() -> None:
    lab = Lab()
    short, long = lab.add(3, 2, deadline=5.0), lab.add(3, 20)
    lab.steps(10)
    assert lab.now > 5.0
    assert short.finish_reason is FinishReason.LENGTH
    assert lab.scheduler.expire(lab.now) == []
    lab.finish()
    assert long.num_output == 20


def test_a_preempted_request_expires_while_it_waits_with_the_tokens_it_has() -> None:
    lab = Lab(slots=1)
    low = lab.add(5, 20, 3, deadline=6.0)
    lab.steps(3)
    lab.add(3, 9, 1)
    lab.run()
    assert low.finish_reason is FinishReason.TIMEOUT
    assert list(low.output) == lone_run(low.request.prompt, 20)[:3]


@pytest.mark.parametrize("overlap", [False, True])
def test_an_expiry_is_reported_though_the_step_of_the_same_call_fails(overlap: bool) -> None:
    clock = Clock()
    engine, executor = oracle_engine(overlap=overlap, clock=clock)
    engine.add(request(2, 10))
    late = engine.add(request(2, 10, deadline=5.0))
    engine.step()
    clock.now = 6.0
    # With overlap the step in flight is good and the next launch fails; without, the one step of the call does.
    setattr(executor, "launch" if overlap else "run", lambda *_: 1 / 0)
    with pytest.raises(StepFailedError) as caught:
        engine.step()
    assert late.finish_reason is FinishReason.TIMEOUT
    assert [s for s, token in caught.value.outputs if token is None] == [late]


def test_what_has_ended_is_not_kept_until_its_deadline() -> None:
    lab = Lab(slots=4)
    for _ in range(200):
        lab.add(2, 1, deadline=1e9)
    lab.run()
    lab.sequences.clear()
    lab.outputs.clear()
    lab.executor.plans.clear()
    gc.collect()
    kept = [s for s in gc.get_objects() if type(s) is Sequence and s.request.deadline == 1e9]
    assert len(kept) < 50
