"""A waiting request takes from less urgent ones that run: when, from whom, how much; and what becomes of their step."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.request import Sequence, State
from backend.scheduler.costs import PreemptionCosts
from backend.scheduler.preemption import Shortage, VictimChooser
from tests.engine.engines import request
from tests.scheduler.lab import Lab, preempted, untouched

COSTS = PreemptionCosts(seconds_per_token=1.0, seconds_per_block=1.0, mode="recompute")


def short_of(what: str, level: int) -> tuple[Lab, list[Sequence]]:
    """Six sequences of a level decode, and nothing of one kind is left."""
    lab = Lab(
        slots=6 if what == "slots" else 8,
        blocks=24 if what == "blocks" else 200,
        step_tokens=6 if what == "step tokens" else 96,
    )
    # Thirteen to sixteen tokens take four blocks: six times four is the pool of twenty-four.
    prompt, output = {"slots": (5, 50), "blocks": (13, 3), "step tokens": (1, 50)}[what]
    runners = [lab.add(prompt, output, level) for _ in range(6)]
    lab.step()
    assert all(s.num_output >= 1 for s in runners)
    return lab, runners


KINDS = pytest.mark.parametrize("what", ["slots", "blocks", "step tokens"])


@KINDS
def test_an_urgent_request_gets_its_first_token_in_the_next_step_whatever_is_short(what: str) -> None:
    lab, runners = short_of(what, level=3)
    urgent = lab.add(3, 5, 1)
    lab.step()
    assert urgent.num_output == 1
    # Tokens are taken for one step; slots and blocks from one sequence, the newest as all lose the same.
    assert preempted(*runners) == [False] * 5 + [what != "step tokens"]
    lab.finish()


@KINDS
@pytest.mark.parametrize("level", [2, 3])
def test_a_request_that_is_not_strictly_more_urgent_takes_nothing(what: str, level: int) -> None:
    lab, runners = short_of(what, level=2)
    later = lab.add(3, 5, level)
    plan = lab.step()
    assert plan.decodes == runners
    assert all(s.num_preemptions == 0 for s in runners)
    assert later.num_output == 0
    lab.finish()
    assert [s.num_preemptions for s in runners] == [0] * 6


def test_an_urgent_request_takes_step_tokens_from_a_less_urgent_prompt_when_nothing_decodes() -> None:
    lab = Lab(step_tokens=16)
    long = lab.add(160, 2, 3)
    lab.step()
    urgent = lab.add(4, 2, 1)
    plan = lab.step()
    assert urgent.num_output == 1
    assert [(c.sequence, c.num_tokens) for c in plan.chunks] == [(urgent, 4), (long, 12)]
    lab.finish()


def test_work_that_sits_a_step_out_keeps_its_blocks_and_goes_on_in_the_next() -> None:
    lab, runners = short_of("step tokens", level=3)
    before = [(s.num_output, list(s.blocks)) for s in runners]
    lab.add(5, 1, 1)  # of more than one step: for its whole prompt in one, all would sit out
    lab.step()
    after = [(s.num_output, list(s.blocks)) for s in runners]
    # Three of the six tokens of the step went to the urgent prompt, taken from the newest.
    assert [new[0] - old[0] for old, new in zip(before, after, strict=True)] == [1, 1, 1, 0, 0, 0]
    assert [new[1][: len(old[1])] for old, new in zip(before, after, strict=True)] == [old[1] for old in before]
    assert lab.step().decodes == runners
    lab.finish()


def test_a_long_urgent_prompt_takes_half_of_the_step_from_streams_and_no_more() -> None:
    lab = Lab(slots=16, step_tokens=16)
    runners = [lab.add(1, 60, 3) for _ in range(14)]
    lab.step()
    urgent = lab.add(40, 2, 1)
    plans = lab.steps(5)
    # 16 tokens: 8 to the prompt, 8 to the oldest of the streams, until the prompt's 40 are computed.
    assert [[c.num_tokens for c in p.chunks] for p in plans] == [[8]] * 5
    assert all(p.decodes == runners[:8] for p in plans)
    assert urgent.num_output == 1
    lab.finish()


def test_a_long_urgent_prompt_takes_nothing_from_streams_that_need_less_than_half_of_the_step() -> None:
    lab = Lab(slots=16, step_tokens=16)
    runners = [lab.add(1, 60, 3) for _ in range(5)]
    lab.step()
    lab.add(40, 2, 1)
    plans = lab.steps(3)
    assert [[c.num_tokens for c in p.chunks] for p in plans] == [[11]] * 3
    assert all(p.decodes == runners for p in plans)
    lab.finish()


# --- all or nothing


@pytest.mark.parametrize(("asked", "enough"), [(24, True), (25, False)])
def test_nobody_is_touched_unless_all_victims_together_suffice(asked: int, enough: bool) -> None:
    lab = Lab(blocks=12, host_slots=12)
    better, low, lowest = lab.add(21, 4, 1), lab.add(13, 4, 3), lab.add(5, 4, 4)  # 6 + 4 + 2 blocks
    lab.step()
    middle = lab.add(asked, 1, 2)  # 6 or 7 blocks, where 6 can be had
    plan = lab.step()
    if enough:
        assert preempted(low, lowest) == [True, True]
        assert middle.num_output == 1
    else:
        assert untouched(low, lowest)
        assert plan.decodes == [better, low, lowest]
        assert middle.state is State.WAITING
    assert untouched(better)
    lab.finish()


def test_a_slot_is_not_taken_from_a_victim_whose_blocks_would_not_suffice() -> None:
    lab = Lab(slots=2, blocks=8)
    better, low = lab.add(17, 4, 1), lab.add(5, 4, 3)  # 5 + 2 blocks, 1 free
    lab.step()
    middle = lab.add(13, 2, 2)  # 4 blocks, where 3 can be had
    lab.step()
    assert untouched(better, low)
    assert middle.state is State.WAITING
    lab.finish()


def test_who_cannot_enter_does_not_keep_a_more_urgent_one_from_preempting() -> None:
    lab = Lab(slots=2, blocks=20)
    low = [lab.add(5, 9, 3) for _ in range(2)]
    lab.step()
    equal, urgent = lab.add(5, 2, 3), lab.add(5, 2, 1)
    lab.step()
    assert urgent.num_output == 1
    assert preempted(*low) == [False, True]
    assert equal.num_output == 0
    lab.finish()


# --- who is taken


def running(level: int, num_blocks: int, num_tokens: int | None = None, num_preemptions: int = 0) -> Sequence:
    sequence = Sequence(request(1, 1, level))
    sequence.state = State.RUNNING
    sequence.blocks = [0] * num_blocks
    sequence.num_computed = 4 * num_blocks if num_tokens is None else num_tokens
    sequence.num_preemptions = num_preemptions
    return sequence


class Total:
    """Counts what victims hold, as if nobody shared anything."""

    def __init__(self) -> None:
        self.blocks = 0

    def add(self, victim: Sequence) -> None:
        self.blocks += len(victim.blocks)

    def remove(self, victim: Sequence) -> None:
        self.blocks -= len(victim.blocks)


def choose(candidates: list[Sequence], slots: int = 0, blocks: int = 0) -> list[Sequence] | None:
    return VictimChooser(COSTS, cap=3).choose(candidates, Shortage(slots, blocks), Total)


def test_the_lowest_level_is_taken_first_however_much_it_loses() -> None:
    cheap, dear = running(2, 1), running(3, 9)
    assert choose([cheap, dear], slots=1) == [dear]


def test_inside_a_level_those_that_lose_least_are_taken_first_and_the_newest_on_ties() -> None:
    old, new, cheap = running(3, 2), running(3, 2), running(3, 2, num_tokens=7)
    assert choose([old, new, cheap], slots=1) == [cheap]
    assert choose([old, new], slots=1) == [new]
    assert choose([old, new, cheap], slots=2) == [cheap, new]


def test_what_is_lost_is_counted_by_the_better_of_copying_and_computing_again() -> None:
    costs = PreemptionCosts(seconds_per_token=1.0, seconds_per_block=3.0)
    half_full, full = running(3, 2, num_tokens=9), running(3, 1, num_tokens=8)  # min(9, 12) and min(8, 6)
    assert VictimChooser(costs, cap=3).choose([half_full, full], Shortage(1, 0), Total) == [full]


def test_inside_a_level_those_at_the_cap_are_taken_last() -> None:
    often, dear = running(3, 1, num_preemptions=3), running(3, 9)
    assert choose([often, dear], slots=1) == [dear]


def test_one_that_suffices_alone_is_taken_instead_of_several_that_lose_less_each() -> None:
    small, middle, large = running(3, 1), running(3, 2), running(3, 6)
    assert choose([small, middle, large], blocks=6) == [large]


def test_a_more_urgent_victim_is_spared_if_a_later_choice_makes_up_for_it() -> None:
    low, first, second = running(3, 1), running(2, 2), running(2, 5)
    assert choose([low, first, second], blocks=6) == [low, second]


@given(
    shapes=st.lists(st.tuples(st.integers(2, 4), st.integers(1, 6), st.integers(0, 4)), max_size=7),
    slots=st.integers(-1, 3),
    blocks=st.integers(-2, 15),
)
@settings(max_examples=150, deadline=None)
def test_victims_suffice_none_is_needless_and_no_better_one_is_taken_while_worse_ones_suffice(
    shapes: list[tuple[int, int, int]], slots: int, blocks: int
) -> None:
    candidates = [running(level, count, num_preemptions=often) for level, count, often in shapes]

    def suffice(some: list[Sequence]) -> bool:
        return len(some) >= slots and sum(len(s.blocks) for s in some) >= blocks

    victims = choose(candidates, slots, blocks)
    assert (victims is None) == (not suffice(candidates))
    if victims is None:
        return
    assert suffice(victims)
    fewer = itertools.combinations(victims, max(0, len(victims) - 1))
    assert not victims or not any(suffice(list(rest)) for rest in fewer)
    worst_enough = max((n for n in range(1, 5) if suffice([s for s in candidates if s.request.level >= n])), default=5)
    assert all(s.request.level >= worst_enough for s in victims)


# --- the step in which it happens (case 19)


def test_a_victim_planned_before_the_requester_loses_its_place_in_this_step() -> None:
    lab = Lab(blocks=4)
    bystander, grower, victim = lab.add(2, 3), lab.add(4, 4), lab.add(5, 3)  # 1 + 1 + 2 blocks
    lab.step()
    plan = lab.step()  # the grower's second block comes after the victim's decode has been planned
    assert plan.decodes == [bystander, grower]
    assert (victim.state, victim.num_computed, victim.blocks) == (State.WAITING, 0, [])
    lab.finish()


def test_a_victim_that_would_have_been_planned_after_the_requester_has_nothing_in_this_step() -> None:
    lab = Lab(blocks=3)
    bystander, grower, victim = lab.add(2, 3), lab.add(4, 3), lab.add(4, 3)
    lab.step()
    assert lab.step().decodes == [bystander, grower]
    assert preempted(victim) == [True]
    lab.finish()


def test_a_victim_whose_chunk_was_planned_in_this_step_loses_it() -> None:
    lab = Lab(blocks=12, step_tokens=16)
    bystander, victim = lab.add(4, 3, 1), lab.add(36, 2, 3)  # 1 + 9 blocks
    lab.step()
    assert victim.num_computed == 12
    urgent = lab.add(13, 2, 2)
    plan = lab.step()
    assert plan.decodes == [bystander]
    assert [c.sequence for c in plan.chunks] == [urgent]
    assert (victim.state, victim.num_computed) == (State.WAITING, 0)
    lab.finish()


def test_a_requester_that_is_itself_the_lowest_yields_and_the_others_have_their_step() -> None:
    lab = Lab(blocks=3)
    first, second, last = lab.add(2, 3), lab.add(2, 3), lab.add(4, 3)
    lab.step()
    assert lab.step().decodes == [first, second]
    assert preempted(first, second, last) == [False, False, True]
    lab.finish()


def test_urgent_requests_one_by_one_over_full_slots_never_wait_and_everyone_finishes() -> None:
    lab = Lab(slots=6, blocks=60, step_tokens=40)
    lows = [lab.add(6, 40, 3) for _ in range(12)]
    lab.steps(3)
    for _ in range(20):
        urgent = lab.add(6, 2, 1)
        lab.step()
        assert urgent.num_output == 1
        lab.steps(2)
    lab.finish()
    assert max(s.num_preemptions for s in lows) > 0
