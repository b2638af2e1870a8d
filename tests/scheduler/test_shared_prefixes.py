"""The prefix cache at work: what is computed once, when it is found, and who does not wait for it."""

import pytest

from backend.request import Sequence, State
from backend.scheduler.plan import StepPlan
from tests.engine.engines import oracle_engine, request
from tests.engine.engines import run as run_engine
from tests.oracle import lone_run
from tests.scheduler.lab import Lab, assert_lone, untouched

ONE, TWO = (1, 2, 3, 4), (5, 6, 7, 8)


class SameHash(int):
    """Every token hashes alike, so every block of them does."""

    def __hash__(self) -> int:
        return 7


def test_outputs_are_right_though_all_prompts_hash_alike() -> None:
    lab = Lab(slots=2, blocks=24)
    prompts = [tuple(SameHash((n * 31 + k) % 97) for k in range(13)) for n in range(5)]
    for prompt in (*prompts, *prompts):
        lab.add(prompt, 5)
    lab.finish()
    assert lab.scheduler.residency.hit_tokens > 0


def test_cached_blocks_are_given_up_before_anyone_is_preempted_by_arrival_or_growth() -> None:
    lab = Lab(blocks=8)
    lab.add(13, 2)
    lab.run()
    assert lab.scheduler.pool.num_cached == 3
    low = lab.add(9, 8, 3)  # three blocks, later four
    lab.step()
    urgent = lab.add(13, 3, 1)  # four blocks; the growth of the other takes the last
    lab.steps(3)
    assert untouched(low)
    assert urgent.num_output == 3
    assert lab.scheduler.population.num_preemptions == 0
    lab.finish()


# --- when a block can be found


def test_nothing_is_found_before_its_step_has_been_committed() -> None:
    lab = Lab()
    first = lab.add((*ONE, *TWO, 99), 4)
    second = Sequence(request((*ONE, *TWO, 98), 4))

    def hits() -> int:
        return len(lab.scheduler.residency.hits(second))

    plan = lab.scheduler.schedule()
    assert hits() == 0
    tokens = lab.executor.launch(plan).collect()
    assert hits() == 0
    lab.scheduler.finished(plan.step)
    assert hits() == 0
    lab.scheduler.commit(plan, tokens)
    assert hits() == 2
    lab.run()
    assert_lone(first)


def test_a_block_of_output_is_found_too_once_it_is_full() -> None:
    lab = Lab()
    first = lab.add((1, 2, 3), 7)
    lab.run()
    again = lab.add((1, 2, 3, *first.output), 2)  # nine of its ten tokens have been computed: two blocks
    plans = lab.run()
    assert [(c.start, c.num_tokens) for plan in plans for c in plan.chunks if c.sequence is again] == [(8, 2)]
    assert_lone(first, again)


def test_what_a_preempted_and_resumed_sequence_had_in_an_old_block_is_not_published_in_its_new_one() -> None:
    prefix, rest = tuple(range(100, 108)), tuple(range(200, 232))
    engine, _ = oracle_engine(blocks=16, slots=6, step_tokens=8)
    older, victim = engine.add(request(5, 20, 2)), engine.add(request(prefix + rest, 2, 3))
    engine.step()
    urgent = engine.add(request((*prefix, 1), 20, 1))  # publishes the prefix before the victim does
    for _ in range(6):
        engine.step()
    # Step 7 has taken the victim's blocks for the older one's growth, and readmitted it at once, with the urgent
    # one's two blocks and eight others: its cursor is at 14, while its chunk of step 6 reached 26 in the old blocks.
    assert (victim.num_preemptions, victim.num_computed) == (1, 14)
    assert victim.num_published == 2  # only what it was given: nothing of its own has been committed
    reader = engine.add(request((prefix + rest)[:22], 3, 1))
    run_engine(engine)
    assert_lone(older, victim, urgent, reader)


# --- prefixes computed once


def computed(plans: list[StepPlan]) -> int:
    return sum(c.num_tokens for plan in plans for c in plan.chunks)


PREFIX = tuple(range(500, 516))


@pytest.mark.parametrize("overlap", [False, True])
def test_requests_of_one_batch_that_share_a_new_prefix_compute_it_once(overlap: bool) -> None:
    engine, executor = oracle_engine(slots=6, step_tokens=64, overlap=overlap)
    group = [engine.add(request((*PREFIX, n, n + 1, n + 2), 4)) for n in range(5)]
    run_engine(engine)
    assert computed(executor.plans) == 16 + 5 * 3
    assert_lone(*group)


def test_a_prefix_computed_in_several_chunks_is_still_computed_once() -> None:
    lab = Lab(step_tokens=8)
    group = [lab.add((*PREFIX, n, n + 1, n + 2), 4) for n in range(4)]
    assert computed(lab.run()) == 16 + 4 * 3
    assert_lone(*group)


def test_without_the_cache_or_with_other_salts_each_computes_its_own() -> None:
    for settings_of, salts in (({"prefix_cache": False}, [""] * 3), ({}, ["a", "b", "c"])):
        lab = Lab(**settings_of)
        group = [lab.add((*PREFIX, n, n + 1, n + 2), 4, salt=salt) for n, salt in enumerate(salts)]
        assert computed(lab.run()) == 3 * 19
        assert lab.scheduler.residency.hit_tokens == 0
        assert_lone(*group)


def test_an_urgent_request_does_not_wait_for_a_prefix_that_a_less_urgent_one_computes() -> None:
    lab = Lab(step_tokens=24)
    lab.add(2, 30, 1)
    low = lab.add((*PREFIX, *range(100, 160)), 2, 3)
    lab.step()
    same, urgent = lab.add((*low.request.prompt[:60], 1), 2, 3), lab.add((*low.request.prompt[:40], 1), 2, 1)
    lab.steps(2)
    assert urgent.num_output >= 1
    assert same.state is State.WAITING
    lab.finish()


def test_those_that_wait_for_a_prefix_do_not_wait_for_ever_if_its_computer_is_cancelled() -> None:
    engine, executor = oracle_engine(step_tokens=8)
    first, second = (engine.add(request((*PREFIX, n), 3)) for n in range(2))
    engine.step()
    engine.cancel(first)
    run_engine(engine)
    assert_lone(second)
    assert computed(executor.plans) <= 8 + 17


def test_the_cached_tokens_of_a_tenant_are_counted_for_its_salt_alone() -> None:
    lab = Lab()
    counts = []
    for salt in ("a", "a", "b", "b"):
        before = lab.scheduler.residency.hit_tokens
        lab.add((*PREFIX, 7), 2, salt=salt)
        lab.run()
        counts.append(lab.scheduler.residency.hit_tokens - before)
    assert counts == [0, 16, 0, 16]
    assert all(list(s.output) == lone_run(s.request.prompt, 2) for s in lab.sequences)
