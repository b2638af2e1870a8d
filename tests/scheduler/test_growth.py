"""What runs needs another block: from whom it is taken, who is protected, who always advances."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.endings import FinishReason
from backend.request import Sequence, State
from tests.engine.engines import oracle_engine, request
from tests.scheduler.lab import Lab, assert_lone, preempted, untouched


def test_growth_takes_from_the_lowest_level_first_though_it_is_older_and_loses_more() -> None:
    lab = Lab(blocks=8)
    lowest, grower, newer = lab.add(17, 3, 3), lab.add(4, 4, 2), lab.add(5, 3, 2)  # 5 + 1 + 2 blocks
    lab.steps(2)
    assert preempted(lowest, grower, newer) == [True, False, False]
    lab.finish()


def test_growth_takes_from_those_of_its_level_that_lose_least_and_from_the_newest_on_ties() -> None:
    lab = Lab(blocks=8)
    grower, cheap, dear = lab.add(4, 4), lab.add(5, 3), lab.add(17, 3)  # 1 + 2 + 5 blocks
    lab.steps(2)
    assert preempted(grower, cheap, dear) == [False, True, False]
    lab.finish()
    lab = Lab(blocks=5)
    grower, older, newer = lab.add(4, 4), lab.add(5, 3), lab.add(5, 3)
    lab.steps(2)
    assert preempted(grower, older, newer) == [False, False, True]
    lab.finish()


def test_growth_never_takes_from_the_older_of_its_level_nor_from_the_more_urgent() -> None:
    lab = Lab(blocks=5)
    older, grower, urgent = lab.add(5, 4), lab.add(4, 4), lab.add(5, 4, 1)
    lab.steps(2)
    assert untouched(older, urgent)
    assert preempted(grower) == [True]
    lab.finish()


def test_growth_takes_one_victim_where_one_is_enough() -> None:
    lab = Lab(blocks=9)
    lab.add(4, 4)
    others = [lab.add(5, 3) for _ in range(4)]
    lab.steps(2)
    assert preempted(*others) == [False, False, False, True]
    lab.finish()


arrivals = st.lists(
    st.tuples(st.integers(0, 25), st.integers(1, 25), st.integers(1, 25), st.integers(1, 3)), min_size=2, max_size=9
)


@given(asked=arrivals, blocks=st.integers(13, 20), step_tokens=st.integers(4, 16), cap=st.integers(0, 2))
@settings(max_examples=50, deadline=None)
def test_the_oldest_of_the_most_urgent_level_that_runs_gets_on_in_every_step(
    asked: list[tuple[int, int, int, int]], blocks: int, step_tokens: int, cap: int
) -> None:
    lab = Lab(blocks=blocks, slots=4, step_tokens=step_tokens, preemption_cap=cap)
    for number in range(3000):
        for start, *shape in asked:
            if start == number:
                lab.add(*shape)
        if number > 25 and not lab.scheduler.has_work:
            break
        before = {s: s.num_output for s in lab.sequences}
        plan = lab.step()
        if plan.sequences:
            ran = [s for s in lab.sequences if s in plan.sequences or s.state is State.RUNNING]
            first = min(ran, key=lambda s: s.order)
            assert first in plan.sequences
            assert first.num_output == before[first] + 1 or any(c.sequence is first for c in plan.chunks)
    assert_lone(*lab.sequences)


def test_one_that_fills_the_pool_by_itself_ends_by_its_length_and_leaves_it_empty() -> None:
    lab = Lab(blocks=6)
    alone = lab.add(14, 11)  # 14 + 10 tokens are held: all 24 slots of the pool
    lab.steps(10)
    assert lab.scheduler.pool.num_held == 6
    lab.step()
    assert alone.finish_reason is FinishReason.LENGTH
    assert alone.num_output == 11
    lab.finish()


def test_two_whose_needs_meet_the_end_of_the_pool_in_the_same_step_both_finish() -> None:
    lab = Lab(blocks=6)
    both = [lab.add(12, 13) for _ in range(2)]
    lab.steps(2)
    assert preempted(*both) == [False, True]
    lab.finish()


# --- the cap on preemptions


def crowd_with_a_capped_one(oldest_level: int, grower_level: int, often: int) -> tuple[Lab, list[Sequence]]:
    """One block each for oldest and grower, one of two reserved for the capped one: four are all there are."""
    lab = Lab(blocks=4, preemption_cap=1)
    oldest = lab.add(2, 3, oldest_level)
    grower = lab.add(4, 4, grower_level)
    capped = lab.add(4, 4, 2)
    lab.say_preempted(capped, often)
    filler = lab.add(3, 2, 3)
    lab.step()
    return lab, [oldest, grower, capped, filler]


def test_at_the_cap_a_sequence_enters_only_with_its_end_reserved() -> None:
    lab, (_, _, capped, filler) = crowd_with_a_capped_one(1, 2, often=1)
    assert capped.state is State.RUNNING
    assert capped.reserved
    assert len(capped.blocks) == 1
    assert filler.state is State.WAITING  # one block is free, and reserved
    lab.finish()


def test_at_the_cap_a_sequence_waits_until_its_end_fits() -> None:
    lab = Lab(blocks=8, preemption_cap=1)
    first = lab.add(17, 4)  # five blocks
    lab.step()
    capped = lab.add(5, 9)  # two blocks now, four to its end
    lab.say_preempted(capped, 1)
    lab.step()
    assert capped.state is State.WAITING
    while first.state is not State.FINISHED:
        lab.step()
    lab.step()
    assert capped.state is State.RUNNING
    lab.finish()


def test_at_the_cap_a_sequence_is_not_taken_by_the_growth_of_its_own_level() -> None:
    lab, (oldest, grower, capped, _) = crowd_with_a_capped_one(1, 2, often=1)
    lab.step()
    assert untouched(oldest)
    assert capped.num_preemptions == 1
    assert preempted(grower) == [True]
    lab.finish()


def test_below_the_cap_the_same_sequence_is_taken() -> None:
    lab = Lab(blocks=3, preemption_cap=1)
    oldest, grower, below = lab.add(2, 3, 1), lab.add(4, 4), lab.add(4, 4)
    lab.steps(2)
    assert untouched(oldest, grower)
    assert preempted(below) == [True]
    lab.finish()


def test_the_cap_does_not_protect_from_a_more_urgent_level() -> None:
    lab, (_, grower, capped, _) = crowd_with_a_capped_one(1, 1, often=1)
    lab.step()
    assert untouched(grower)
    assert capped.num_preemptions == 2
    lab.finish()


def test_the_oldest_of_all_takes_a_capped_one_as_a_last_resort() -> None:
    lab = Lab(blocks=3, preemption_cap=1)
    grower, capped = lab.add(4, 4), lab.add(4, 4)
    lab.say_preempted(capped, 1)
    lab.steps(2)
    assert untouched(grower)
    assert capped.num_preemptions == 2
    lab.finish()


# --- who comes back first (case 21)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_preempted_sequence_resumes_before_any_newer_one_of_its_level_starts(overlap: bool) -> None:
    engine, executor = oracle_engine(blocks=6, overlap=overlap)
    oldest, second = engine.add(request(7, 16)), engine.add(request(8, 12))
    newer = [engine.add(request(4, 3)) for _ in range(4)]
    while not second.num_preemptions:
        engine.step()
    started = {s for plan in executor.plans[:-1] for s in plan.sequences}
    since = len(executor.plans) - 1
    while engine.has_work:
        engine.step()
    afterwards = list(dict.fromkeys(s for plan in executor.plans[since:] for s in plan.sequences))
    newcomers = [s for s in afterwards if s not in started]
    assert newcomers
    assert all(afterwards.index(second) < afterwards.index(s) for s in newcomers)
    assert_lone(oldest, second, *newer)


def test_a_preempted_sequence_of_a_lower_level_resumes_before_newer_ones_of_that_level() -> None:
    lab = Lab(slots=1)
    low = lab.add(5, 6, 3)
    lab.steps(2)
    urgent, newer = lab.add(5, 3, 1), lab.add(5, 3, 3)
    plans = lab.run()
    order = list(dict.fromkeys(s for plan in plans for s in plan.sequences))
    assert order == [urgent, low, newer]
    assert_lone(low, urgent, newer)
