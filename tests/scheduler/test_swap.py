"""Swap or recompute: which is chosen, what exactly is copied, and what becomes of the host's slots."""

from typing import Any

import pytest

from backend.endings import FinishReason
from backend.request import Sequence, State
from backend.scheduler.costs import PreemptionCosts
from tests.scheduler.lab import ALWAYS_SWAP, Lab, assert_lone, preempted


def costs(per_token: float, per_block: float, mode: Any = "auto") -> PreemptionCosts:
    return PreemptionCosts(seconds_per_token=per_token, seconds_per_block=per_block, mode=mode)


def test_swapping_costs_a_copy_out_and_a_copy_in_of_each_block_and_auto_picks_the_cheaper() -> None:
    made = costs(1.0, 3.0)
    assert made.recompute(11) == 11.0
    assert made.swap(2) == 12.0
    assert not made.prefers_swap(11, 2)
    assert not made.prefers_swap(12, 2)  # as dear: no host memory is taken
    assert made.prefers_swap(13, 2)
    assert (made.loss(11, 2), made.loss(13, 2)) == (11.0, 12.0)


@pytest.mark.parametrize(("mode", "swaps"), [("recompute", False), ("swap", True)])
def test_a_fixed_mode_does_not_look_at_the_costs(mode: str, swaps: bool) -> None:
    assert costs(1.0, 1000.0, mode).prefers_swap(1, 1) is swaps
    assert costs(1000.0, 1.0, mode).prefers_swap(1, 1) is swaps


def preempt_one(lab: Lab, prompt: int = 9, steps: int = 3, output: int = 8) -> Sequence:
    """A low request loses the only slot after so many steps."""
    low = lab.add(prompt, output, 3)
    lab.steps(steps)
    lab.add(3, 2, 1)
    return low


@pytest.mark.parametrize(("per_block", "swaps"), [(1.8, True), (1.9, False)])
def test_a_victim_goes_the_way_that_the_measured_costs_say(per_block: float, swaps: bool) -> None:
    lab = Lab(slots=1, host_slots=10, costs=costs(1.0, per_block))
    low = preempt_one(lab)  # 11 tokens in 3 blocks: 2 * 3 * 1.8 = 10.8 < 11 < 11.4 = 2 * 3 * 1.9
    lab.step()
    residency = lab.scheduler.residency
    assert (residency.swapped_blocks, residency.recomputed_tokens) == ((3, 0) if swaps else (0, 11))
    assert low.swapped_tokens == (11 if swaps else 0)
    lab.finish()


def test_the_plan_copies_each_block_that_holds_anything_to_a_slot_and_from_there_to_a_new_block() -> None:
    lab = Lab(slots=1, host_slots=10, costs=ALWAYS_SWAP, prefix_cache=False)
    low = preempt_one(lab)
    held = list(low.blocks)
    out = lab.step().copies
    slots = list(low.host_slots)
    assert len(held) == len(set(slots)) == 3
    assert out.to_host == list(zip(held, slots, strict=True))
    assert (out.from_host, out.within, out.moved) == ([], [], [low])
    plans = lab.run()
    back = [plan.copies for plan in plans if plan.copies.from_host]
    assert len(back) == 1
    assert [slot for slot, _ in back[0].from_host] == slots
    assert len({block for _, block in back[0].from_host}) == 3
    assert (back[0].to_host, back[0].within, back[0].moved) == ([], [], [low])
    assert sum(len(plan.copies.to_host) for plan in plans) == 0
    assert_lone(low)


def test_blocks_of_a_prompt_that_were_not_reached_yet_are_not_copied() -> None:
    lab = Lab(slots=2, host_slots=20, step_tokens=12, costs=ALWAYS_SWAP, prefix_cache=False)
    lab.add(2, 9, 1)
    low = preempt_one(lab, prompt=40, steps=1, output=2)
    held = list(low.blocks)
    assert len(held) == 10
    copies = lab.step().copies
    assert [block for block, _ in copies.to_host] == held[:3]  # 10 tokens
    while low.state is State.WAITING:
        plan = lab.step()
    # Back with what it had: the cursor stands where it stood.
    assert [(c.start, len(plan.copies.from_host)) for c in plan.chunks if c.sequence is low] == [(10, 3)]
    lab.finish()


def test_what_is_computed_after_a_swap_is_the_tokens_that_were_not_in_the_copy() -> None:
    lab = Lab(slots=1, host_slots=10, costs=ALWAYS_SWAP, prefix_cache=False)
    low = preempt_one(lab)
    plans = lab.run()
    computed = [(c.start, c.num_tokens) for plan in plans for c in plan.chunks if c.sequence is low]
    assert computed == [(11, 1)]
    assert_lone(low)


@pytest.mark.parametrize("swaps", [False, True])
def test_blocks_still_in_the_prefix_cache_are_neither_computed_nor_copied_again(swaps: bool) -> None:
    lab = Lab(slots=1, host_slots=10, costs=costs(1.0, 1.0, "swap" if swaps else "recompute"))
    low = preempt_one(lab, prompt=9, steps=3)  # 11 tokens are in; the first two blocks are full, so findable
    first_two = low.blocks[:2]
    plans = lab.run()
    again = next(c for plan in plans for c in plan.chunks if c.sequence is low)
    assert (again.start, again.num_tokens) == ((11, 1) if swaps else (8, 4))
    brought = [pair for plan in plans for pair in plan.copies.from_host]
    assert len(brought) == (1 if swaps else 0)
    assert all(block not in first_two for _, block in brought)
    assert_lone(low)


@pytest.mark.parametrize("host_slots", range(8))
def test_a_full_host_pool_means_recompute_and_no_text_suffers(host_slots: int) -> None:
    lab = Lab(slots=2, host_slots=host_slots, costs=ALWAYS_SWAP, prefix_cache=False)
    lows = [lab.add(9, 9, 3) for _ in range(2)]
    lab.steps(3)
    urgent = [lab.add(5, 3, 1) for _ in range(2)]
    lab.step()
    assert preempted(*lows) == [True, True]
    # Three blocks each; the newer one goes first.
    fitting = [1 if host_slots >= 3 else 0, 1 if host_slots >= 6 else 0]
    assert [bool(s.host_slots) for s in (lows[1], lows[0])] == [bool(n) for n in fitting]
    residency = lab.scheduler.residency
    assert residency.swapped_blocks == 3 * sum(fitting)
    assert residency.recomputed_tokens == 11 * (2 - sum(fitting))
    assert all(s.num_output == 1 for s in urgent)
    lab.finish()


@pytest.mark.parametrize("host_slots", [0, 1, 3, 5, 30])
def test_with_pool_and_host_pool_both_short_everything_still_finishes(host_slots: int) -> None:
    lab = Lab(blocks=10, host_slots=host_slots, costs=ALWAYS_SWAP, prefix_cache=False)
    for n in range(12):
        lab.add(6 + n % 5, 10 + n % 7, 1 + n % 3)
        lab.step()
    lab.finish()
    assert max(s.num_preemptions for s in lab.sequences) > 0


@pytest.mark.parametrize("how", ["cancelled", "expired"])
def test_the_host_slots_of_a_swapped_sequence_come_back_when_it_is(how: str) -> None:
    lab = Lab(slots=1, host_slots=3, costs=ALWAYS_SWAP)
    low = lab.add(9, 8, 3, deadline=5.0 if how == "expired" else None)
    lab.steps(3)
    urgent = lab.add(3, 9, 1)
    lab.step()
    host = lab.scheduler.residency.host
    assert host.num_free == 0
    if how == "cancelled":
        lab.scheduler.end(low, FinishReason.CANCELLED)
    lab.steps(2)
    assert low.finish_reason is (FinishReason.CANCELLED if how == "cancelled" else FinishReason.TIMEOUT)
    assert host.num_free == 3
    lab.run()
    assert_lone(urgent)


def test_a_slot_that_a_step_reads_is_not_handed_out_before_that_step_has_finished() -> None:
    lab = Lab(slots=1, host_slots=3, costs=ALWAYS_SWAP, prefix_cache=False)
    low = preempt_one(lab)
    while low.state is not State.WAITING:
        lab.step()
    lab.step()
    host = lab.scheduler.residency.host
    plan = lab.scheduler.schedule(lab.now)
    assert [slot for slot, _ in plan.copies.from_host] == [0, 1, 2]
    assert host.num_free == 0
    tokens = lab.executor.launch(plan).collect()
    lab.scheduler.finished(plan.step)
    assert host.num_free == 3
    lab.scheduler.commit(plan, tokens)
    lab.finish()
