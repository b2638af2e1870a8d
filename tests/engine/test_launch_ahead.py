"""An engine that launches a step while the one before still runs: same texts, whole books, and failures told."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.engine import StepFailedError
from tests.engine.engines import check_lone_runs, idle, oracle_engine, request, run
from tests.oracle import lone_run

shapes = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 20), st.integers(1, 3), st.integers(0, 12)), min_size=1, max_size=14
)


@given(
    asked=shapes,
    slots=st.integers(1, 5),
    blocks=st.integers(15, 40),
    swap=st.booleans(),
    data=st.data(),
)
@settings(max_examples=100, deadline=None)
def test_any_mix_of_arrivals_and_cancellations_leaves_every_other_text_untouched(
    asked: list[tuple[int, int, int, int]], slots: int, blocks: int, swap: bool, data: st.DataObject
) -> None:
    engine, _ = oracle_engine(
        blocks=blocks, slots=slots, ahead=True, host_slots=30 * swap, mode="swap" if swap else "recompute"
    )
    arrivals = sorted(asked, key=lambda shape: shape[3])
    sequences, step = [], 0
    while engine.has_work or len(sequences) < len(arrivals):
        while len(sequences) < len(arrivals) and arrivals[len(sequences)][3] <= step:
            sequences.append(engine.add(request(*arrivals[len(sequences)][:3])))
        if sequences and data.draw(st.integers(0, 5)) == 0:
            engine.cancel(data.draw(st.sampled_from(sequences)))
        engine.wait()
        engine.step()
        engine.scheduler.check_integrity()
        step += 1
        assert step < 2000
    check_lone_runs(sequences)
    assert idle(engine)


def test_a_step_is_launched_before_the_one_before_it_is_collected() -> None:
    engine, executor = oracle_engine(ahead=True)
    order: list[tuple[str, int]] = []
    launch, collect = executor.launch, executor.run

    def launching(plan):
        order.append(("launch", plan.step))
        return launch(plan)

    def running(plan, jobs):
        order.append(("collect", plan.step))
        return collect(plan, jobs)

    executor.launch, executor.run = launching, running  # type: ignore[method-assign]
    sequence = engine.add(request(4, 3))
    run(engine)
    steps = [step for what, step in order if what == "launch"]
    assert order[:4] == [("launch", 1), ("launch", 2), ("collect", 1), ("launch", 3)]
    assert [step for what, step in order if what == "collect"] == steps
    assert sequence.num_output == 3


def test_a_step_that_fails_when_it_is_collected_ends_its_sequences_and_the_others_go_on() -> None:
    engine, executor = oracle_engine(slots=1, ahead=True)
    touched, waiting = engine.add(request(4, 9)), engine.add(request(4, 9))
    engine.step()
    running, executor.run = executor.run, lambda plan, jobs: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    with pytest.raises(StepFailedError) as caught:
        engine.step()
    executor.run = running  # type: ignore[method-assign]
    assert caught.value.sequences == [touched]
    run(engine)
    assert list(waiting.output) == lone_run(waiting.request.prompt, 9)
    assert idle(engine)


def test_what_was_launched_upon_a_failed_step_fails_with_it() -> None:
    engine, executor = oracle_engine(slots=2, ahead=True)
    touched = engine.add(request(4, 9))
    engine.step()
    late = engine.add(request(4, 9))  # joins the step that is launched while the first one runs
    running, executor.run = executor.run, lambda plan, jobs: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    with pytest.raises(StepFailedError) as caught:
        engine.step()
    executor.run = running  # type: ignore[method-assign]
    assert caught.value.sequences == [touched, late]
    assert not engine.has_work
    assert idle(engine)


def test_a_step_that_cannot_be_launched_does_not_lose_the_tokens_of_the_one_before() -> None:
    engine, executor = oracle_engine(slots=1, ahead=True)
    touched, waiting = engine.add(request(4, 9)), engine.add(request(4, 9))
    engine.step()
    launch, executor.launch = executor.launch, lambda plan: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    with pytest.raises(StepFailedError) as caught:
        engine.step()
    executor.launch = launch  # type: ignore[method-assign]
    assert caught.value.sequences == [touched]
    run(engine)
    assert list(waiting.output) == lone_run(waiting.request.prompt, 9)
    assert idle(engine)


def test_without_overlap_nothing_is_launched_ahead() -> None:
    engine, executor = oracle_engine(ahead=True, overlap=False)
    sequence = engine.add(request(4, 3))
    engine.step()
    assert (sequence.num_output, len(executor.plans)) == (1, 1)
