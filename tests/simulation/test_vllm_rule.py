"""The rule that ours is compared with, on cases that can be counted by hand."""

from backend.request import State
from scripts.simulation.vllm_rule import VllmRule
from tests.scheduler.lab import Lab, preempted


def lab(blocks: int) -> Lab:
    return Lab(blocks=blocks, rule=VllmRule, preemption=False, preemption_cap=1 << 30, prefix_cache=False)


def test_a_running_one_without_a_block_takes_the_newest_of_the_least_urgent_though_it_has_lost_most() -> None:
    short = lab(blocks=12)
    urgent, older, newer = short.add(13, 20, 1), short.add(13, 20, 3), short.add(14, 20, 3)  # four blocks each
    short.steps(4)
    # All need a fifth block, the newest one step before the others: it is itself the last in line, and yields.
    assert preempted(urgent, older, newer) == [False, False, True]
    assert (urgent.num_preemptions, older.num_preemptions) == (0, 0)
    short.finish()


def test_the_urgent_one_takes_from_the_less_urgent_when_it_grows() -> None:
    short = lab(blocks=8)
    low, urgent = short.add(13, 16, 3), short.add(14, 16, 1)
    short.steps(4)
    assert preempted(low, urgent) == [True, False]
    short.finish()


def test_nobody_is_let_in_by_a_step_that_has_preempted_though_there_is_room() -> None:
    short = lab(blocks=8)
    low, middle = short.add(13, 16, 3), short.add(14, 16, 2)
    short.steps(2)
    urgent = short.add(2, 2, 1)
    while not low.num_preemptions:
        assert urgent.state is State.WAITING, "there is no block for it"
        short.step()
    assert urgent.state is State.WAITING, "three blocks are free, but this step has preempted"
    short.step()
    assert urgent.num_output == 1
    assert middle.num_preemptions == 0
    short.finish()


def test_a_waiting_urgent_one_takes_nothing() -> None:
    short = Lab(slots=1, rule=VllmRule, preemption=False)
    low = short.add(4, 10, 3)
    short.step()
    urgent = short.add(4, 2, 1)
    short.steps(8)
    assert (low.num_preemptions, urgent.num_output) == (0, 0)
    short.finish()
