"""Prompt chunks are cut so that steps stay within the target, by a line fitted to the steps themselves."""

import random

import pytest

from backend.request import Sequence
from backend.scheduler.step_time import StepTime
from tests.scheduler.lab import Lab

BASE, SLOPE = 0.010, 0.001
"""Seconds of an empty step, and of each token."""


def learnt(*points: tuple[int, float]) -> StepTime:
    made = StepTime()
    for tokens, seconds in points:
        made.observe(tokens, seconds)
    return made


def line(tokens: int) -> float:
    return BASE + SLOPE * tokens


def test_the_fit_recovers_a_line_and_inverts_it() -> None:
    fit = learnt(*((n, line(n)) for n in (1, 9, 4, 60, 33, 8, 8, 17, 2, 100)))
    assert fit.predict(0) == pytest.approx(BASE)
    assert fit.predict(250) == pytest.approx(BASE + 250 * SLOPE)
    assert fit.tokens_within(line(70) + 1e-9) == 70
    assert fit.tokens_within(BASE / 2) == 0


def test_the_fit_recovers_a_line_through_noise() -> None:
    noise = random.Random(5)
    sizes = [noise.randrange(1, 200) for _ in range(600)]
    fit = learnt(*((n, line(n) * noise.uniform(0.9, 1.1)) for n in sizes))
    assert fit.predict(100) == pytest.approx(line(100), rel=0.03)
    assert fit.tokens_within(line(100)) == pytest.approx(100, abs=5)


def test_the_fit_follows_when_the_machine_becomes_slower() -> None:
    fit = learnt(*((n % 50 + 1, line(n % 50 + 1)) for n in range(1000)))
    for n in range(700):
        fit.observe(n % 50 + 1, 3 * line(n % 50 + 1))
    assert fit.predict(40) == pytest.approx(3 * line(40), rel=0.01)


def test_nothing_is_said_before_eight_steps_and_nothing_from_steps_of_one_size() -> None:
    assert learnt(*((n, line(n)) for n in range(1, 8))).tokens_within(1.0) is None
    assert learnt(*((n, line(n)) for n in range(1, 9))).tokens_within(1.0) is not None
    assert learnt(*([(8, line(8))] * 50)).tokens_within(1.0) is None
    assert StepTime().predict(5) == 0.0


def test_no_step_is_expected_to_take_less_than_nothing_nor_less_for_more_tokens() -> None:
    steep = learnt(*((n, 0.01 * (n - 5)) for n in range(6, 30)))
    assert steep.predict(0) == 0.0
    falling = learnt(*((n, 1.0 / n) for n in range(1, 30)))
    assert falling.predict(1000) >= falling.predict(1) >= 0.0


# --- chunks


def streams(
    count: int, level: int, target: float, output: int = 600, **settings: float
) -> tuple[Lab, list[Sequence]]:  # fmt: skip
    """Sequences that decode; steps of many sizes have taught the scheduler how long they take."""
    lab = Lab(
        slots=count + 4, blocks=3000, step_tokens=512, base=BASE, slope=SLOPE, target_step_seconds=target, **settings
    )
    for size in (3, 40, 90, 7, 150, 20, 60, 11, 33):
        lab.add(size, 1)
        lab.step()
    decoding = [lab.add(4, output, level) for _ in range(count)]
    lab.step()
    assert all(s.num_output for s in decoding)
    return lab, decoding


def test_a_chunk_is_cut_to_the_target_while_an_equal_or_more_urgent_stream_decodes() -> None:
    for stream_level in (1, 2):
        lab, _ = streams(2, stream_level, target=line(30) + 1e-6)
        prompt = lab.add(100, 2, 2)
        plans = lab.steps(4)
        assert [(len(p.decodes), p.num_tokens) for p in plans] == [(2, 30)] * 3 + [(2, 18)]
        assert prompt.num_output == 1


def test_a_chunk_is_not_cut_when_only_less_urgent_streams_decode_or_there_is_no_target() -> None:
    for stream_level, target in ((3, line(30)), (2, 0.0)):
        lab, decoding = streams(2, stream_level, target)
        prompt = lab.add(400, 2, 2)
        plan = lab.step()
        assert [c.num_tokens for c in plan.chunks if c.sequence is prompt] == [400]
        # The less urgent ones sit the step of a whole prompt out.
        assert plan.decodes == (decoding if stream_level == 2 else [])
        assert prompt.num_output == 1


def test_alone_a_prompt_is_computed_at_full_width_though_there_is_a_target() -> None:
    lab, decoding = streams(1, 2, target=line(20), output=5)
    lab.run()
    assert decoding[0].num_output == 5
    prompt = lab.add(500, 1)
    assert [c.num_tokens for c in lab.step().chunks] == [500]
    assert prompt.num_output == 1


def test_a_target_that_decoding_alone_exceeds_still_lets_prompts_on_by_a_block_per_step() -> None:
    lab, decoding = streams(6, 2, target=BASE / 2)
    prompt = lab.add(20, 2)
    plans = lab.steps(5)
    assert [(len(p.decodes), [c.num_tokens for c in p.chunks]) for p in plans] == [(6, [4])] * 5
    assert prompt.num_output == 1
    assert all(s.num_output == 6 for s in decoding)


def test_several_prompts_share_what_the_target_leaves() -> None:
    lab, _ = streams(2, 2, target=line(30) + 1e-6)
    prompts = [lab.add(18, 2) for _ in range(3)]
    plans = lab.steps(3)
    # Two streams leave 28 tokens; in the second step the first prompt decodes, too, and 27 are left.
    assert [[c.num_tokens for c in p.chunks] for p in plans] == [[18, 10], [8, 18], []]
    assert [p.num_tokens for p in plans] == [30, 29, 5 - 1]
    assert all(s.num_output for s in prompts)


# The target, and one step on top at the most: of the streams alone, or a full one if the prompts are more urgent.
@pytest.mark.parametrize(("level", "on_top"), [(1, 512), (2, 8), (3, 8)])
def test_a_flood_of_long_prompts_widens_no_gap_beyond_the_target_and_both_sides_get_on(level: int, on_top: int) -> None:
    target = 0.050
    lab, decoding = streams(8, 2, target)
    last = dict.fromkeys(decoding, lab.now)
    widest, begun, prompts = 0.0, lab.now, []
    while lab.now < begun + 12.0:
        # Three at a time: with those there are slots for all, so it is the steps that are fought over.
        while sum(s.finish_reason is None for s in prompts[-3:]) < 3:
            prompts.append(lab.add(800, 2, level))
        lab.step()
        for sequence, _ in lab.outputs:
            if sequence in last:
                widest = max(widest, lab.now - last[sequence])
                last[sequence] = lab.now
    assert widest <= target + line(on_top)
    # A step has 40 tokens at 50 ms, 8 of them the streams': 32 per step go into prompts of 800.
    steps = (lab.now - begun) / target
    answered = sum(1 for s in prompts if s.num_output)
    assert steps >= 240
    assert answered >= 0.9 * steps * 32 / 800
    assert all(s.num_output >= 12.0 / (target + line(on_top)) for s in decoding)


def knowing(**settings: float) -> Lab:
    """A lab without a stream that knows how long its steps take."""
    lab, _ = streams(0, 2, target=0.0, **settings)
    return lab


@pytest.mark.parametrize(("level", "chunks"), [(1, [400]), (2, [30, 30, 30]), (3, [30, 30, 30])])
def test_prompts_below_the_most_urgent_level_are_cut_so_that_no_arrival_waits_long_for_a_step(
    level: int, chunks: list[int]
) -> None:
    lab = knowing(max_step_seconds=line(30) + 1e-6)
    lab.add(400, 2, level)
    assert [c.num_tokens for plan in lab.steps(len(chunks)) for c in plan.chunks] == chunks


def test_where_decodes_alone_take_long_prompts_may_lengthen_their_step_by_half() -> None:
    lab, decoding = streams(80, 1, target=0.0, max_step_seconds=line(80))
    lab.add(800, 2)
    within = (line(80) * 1.5 - BASE) / SLOPE  # 125 tokens, or 124 as the fit's last bits fall
    assert [c.num_tokens for plan in lab.steps(2) for c in plan.chunks] == pytest.approx([within - 80] * 2, abs=1.001)
    assert {s.num_output for s in decoding} == {3}


def test_less_urgent_prompts_lengthen_a_step_with_a_more_urgent_one_by_a_tenth_at_most() -> None:
    lab = knowing()
    urgent, low = lab.add(200, 2, 1), lab.add(300, 2, 3)
    plan = lab.step()
    chunks = {c.sequence: c.num_tokens for c in plan.chunks}
    assert chunks[urgent] == 200
    assert chunks[low] == int((line(200) * 1.1 - BASE) / SLOPE + 1e-6) - 200
    assert urgent.num_output == 1
    assert [c.num_tokens for c in lab.step().chunks if c.sequence is low] == [300 - chunks[low]]
    lab.run()


def test_streams_sit_the_step_of_a_more_urgent_prompt_out_but_no_two_running() -> None:
    lab, low = streams(8, 3, target=0.0)
    same = lab.add(4, 600, 1)
    lab.steps(2)
    plans = []
    for _ in range(6):  # an urgent prompt in every step
        lab.add(20, 1, 1)
        plans.append(lab.step())
    assert [c.num_tokens for plan in plans for c in plan.chunks] == [20] * 6
    assert [sum(s in low for s in plan.decodes) for plan in plans] == [0, 8, 0, 8, 0, 8]
    assert all(same in plan.decodes for plan in plans)


def test_streams_sit_out_for_no_prompt_of_their_own_level_nor_for_one_of_many_steps() -> None:
    lab, decoding = streams(8, 2, target=0.0)
    lab.add(20, 1, 2)
    assert len(lab.step().decodes) == 8
    lab.add(900, 1, 1)
    assert [len(plan.decodes) for plan in lab.steps(2)] == [8, 8]
    assert all(s.num_output > 3 for s in decoding)


def test_equally_urgent_prompts_share_a_step_as_its_tokens_allow() -> None:
    lab = knowing()
    first, second = lab.add(200, 2, 2), lab.add(300, 2, 2)
    assert {c.sequence: c.num_tokens for c in lab.step().chunks} == {first: 200, second: 300}


def test_without_a_target_the_same_flood_widens_the_gaps() -> None:
    lab, decoding = streams(8, 2, target=0.0)
    lab.add(800, 2)
    began = lab.now
    lab.step()
    assert lab.now - began > 0.050 + line(8)
    assert decoding[0].num_output == 2
