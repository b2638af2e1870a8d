"""The policies and knobs of SchedulerSettings: what each admits, leaves free, and costs."""

import random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.kv.block_table import blocks_for
from backend.request import Sequence, State
from tests.scheduler.lab import ALWAYS_SWAP, Lab, assert_lone, preempted, untouched


def ends(sequences: list[Sequence]) -> int:
    """Blocks of four tokens that they hold at their ends."""
    return sum(blocks_for(s.limit, 4) for s in sequences)


@given(
    asked=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(0, 20)), min_size=1, max_size=10),
    blocks=st.integers(15, 30),
)
@settings(max_examples=40, deadline=None)
def test_guaranteed_no_evict_never_preempts_and_runs_only_what_fits_to_the_end(
    asked: list[tuple[int, int, int]], blocks: int
) -> None:
    lab = Lab(blocks=blocks, guaranteed_no_evict=True, prefix_cache=False)
    for step in range(25):
        for prompt, output, arrival in asked:
            if arrival == step:
                lab.add(prompt, output)
        lab.step()
        assert ends(lab.scheduler.running) <= blocks
    lab.finish()
    assert lab.scheduler.population.num_preemptions == 0


def test_max_utilization_runs_what_fits_now_and_guaranteed_no_evict_what_fits_at_the_end() -> None:
    together = []
    for guaranteed in (False, True):
        lab = Lab(blocks=16, guaranteed_no_evict=guaranteed)
        for _ in range(6):
            lab.add(5, 24)  # two blocks now, seven at the end
        lab.step()
        together.append(len(lab.scheduler.running))
        lab.finish()
    assert together == [6, 2]


def test_guaranteed_no_evict_counts_the_last_token_which_takes_no_slot() -> None:
    lab = Lab(blocks=4, guaranteed_no_evict=True)
    both = [lab.add(5, 4) for _ in range(2)]  # 8 of the 9 tokens are held: two blocks each
    lab.step()
    assert untouched(*both)
    lab.finish()


def test_guaranteed_no_evict_still_lets_the_more_urgent_preempt() -> None:
    lab = Lab(blocks=8, guaranteed_no_evict=True)
    older, newer = lab.add(5, 12, 3), lab.add(5, 12, 3)  # four blocks each to the end
    lab.steps(2)
    urgent = lab.add(9, 6, 1)
    lab.step()
    assert urgent.num_output == 1
    assert preempted(older, newer) == [False, True]
    lab.finish()


def test_without_preemption_the_urgent_come_first_but_take_nothing() -> None:
    lab = Lab(slots=1, preemption=False)
    low = lab.add(5, 6, 3)
    lab.step()
    later, urgent = lab.add(5, 2, 2), lab.add(5, 2, 1)
    plans = lab.run()
    order = list(dict.fromkeys(s for plan in plans for s in plan.sequences))
    assert order == [low, urgent, later]
    assert low.num_preemptions == 0
    assert_lone(low, later, urgent)


def test_without_preemption_no_step_tokens_are_taken_either() -> None:
    lab = Lab(slots=8, step_tokens=6, preemption=False)
    runners = [lab.add(1, 20, 3) for _ in range(5)]
    lab.step()
    urgent = lab.add(4, 2, 1)
    plans = lab.steps(4)
    assert [(p.decodes, [c.num_tokens for c in p.chunks]) for p in plans] == [(runners, [1])] * 4
    assert urgent.num_output == 1
    lab.finish()


def test_the_reserve_is_left_free_by_admission_while_something_runs_and_used_by_growth() -> None:
    lab = Lab(blocks=20, free_block_reserve=0.5)
    first, second, third = (lab.add(17, 12) for _ in range(3))  # five blocks each
    lab.step()
    assert lab.scheduler.pool.num_available == 10
    assert third.state is State.WAITING
    lab.steps(8)
    assert lab.scheduler.pool.num_available < 10
    assert untouched(first, second)
    lab.finish()


def test_the_reserve_keeps_out_nobody_when_nothing_runs() -> None:
    lab = Lab(blocks=20, free_block_reserve=0.5)
    large = lab.add(70, 5)
    lab.step()
    assert large.state is State.RUNNING
    assert len(large.blocks) == 18
    lab.finish()


@pytest.mark.parametrize("reserve", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("cap", [0, 1, 3])
@pytest.mark.parametrize("guaranteed", [False, True])
@pytest.mark.parametrize("swap", [False, True])
def test_every_combination_of_knobs_finishes_everything(reserve: float, cap: int, guaranteed: bool, swap: bool) -> None:
    way: dict[str, Any] = {"costs": ALWAYS_SWAP, "host_slots": 9} if swap else {}
    lab = Lab(
        blocks=12,
        slots=4,
        step_tokens=9,
        free_block_reserve=reserve,
        preemption_cap=cap,
        guaranteed_no_evict=guaranteed,
        ageing_seconds=5.0,
        **way,
    )
    for n in range(10):
        lab.add(3 + 3 * n % 20, 4 + 5 * n % 19, 1 + n % 3, tenant="ab"[n % 2])
        lab.step()
    lab.finish()


def test_with_a_cap_of_zero_everything_is_reserved_to_its_end_from_the_start() -> None:
    lab = Lab(blocks=16, preemption_cap=0)
    for _ in range(6):
        lab.add(5, 24)
    lab.step()
    assert len(lab.scheduler.running) == 2
    lab.finish()
    assert lab.scheduler.population.num_preemptions == 0


# --- under pressure (case 49)


class Pressure(NamedTuple):
    steps: int
    useful: int
    computed: int
    preemptions: int
    most: int


def mixed_load(share: float, **settings_of: Any) -> Pressure:
    """Forty requests over eight slots, and a share of the blocks that eight of them hold at their ends on average."""
    dice = random.Random(11)
    asked = [(dice.randint(8, 48), dice.randint(16, 64)) for _ in range(40)]
    mean = sum(blocks_for(prompt + output - 1, 4) for prompt, output in asked) / len(asked)
    lab = Lab(blocks=int(share * 8 * mean), slots=8, step_tokens=64, prefix_cache=False, **settings_of)
    for prompt, output in asked:
        lab.add(prompt, output)
    plans = lab.run()
    assert_lone(*lab.sequences)
    return Pressure(
        len(plans),
        sum(prompt + output - 1 for prompt, output in asked),
        sum(plan.num_tokens for plan in plans),
        lab.scheduler.population.num_preemptions,
        max(s.num_preemptions for s in lab.sequences),
    )


@pytest.mark.parametrize("share", [2.0, 1.0, 0.6, 0.3])
def test_under_pressure_all_finish_and_nobody_is_preempted_beyond_the_cap(share: float) -> None:
    greedy = mixed_load(share, free_block_reserve=0.02)
    careful = mixed_load(share, guaranteed_no_evict=True)
    print(f"\npool {share:.0%}: max_utilization {greedy}\n{'':10}guaranteed_no_evict {careful}")
    assert careful.computed == careful.useful
    assert careful.preemptions == 0
    assert greedy.useful <= greedy.computed
    assert greedy.most <= 3


def test_with_room_for_all_nothing_is_computed_twice() -> None:
    roomy = mixed_load(2.0)
    assert roomy.computed == roomy.useful
    assert roomy.preemptions == 0


def test_a_reserve_cuts_preemptions_under_pressure() -> None:
    assert mixed_load(0.6, free_block_reserve=0.1).preemptions < mixed_load(0.6, free_block_reserve=0.0).preemptions
