"""The clock and the measurements on cases that can be counted by hand."""

from __future__ import annotations

import pytest

from scripts.simulation.calibration import idle_ttft
from scripts.simulation.workload import Mix

from .toys import MIX, job, run, ticking

POLICY_NAMES = ("ours", "fcfs", "vllm", "no_evict")


def test_one_request_has_its_first_token_after_one_step_and_its_last_after_as_many_as_tokens() -> None:
    alone = run([job(0, 3.0, prompt=100, output=5)])
    (record,) = alone.records
    assert (record.first, record.ended) == (4.0, 8.0)
    assert alone.watch.gaps[2] == {1.0: 4}
    assert alone.watch.computed == 100 + 4  # the last token is never read back
    assert alone.watch.steps == 5


def test_a_prompt_longer_than_a_step_takes_several_steps_to_its_first_token() -> None:
    (record,) = run([job(0, 0.0, prompt=100, output=2)], step_tokens=40).records
    assert (record.first, record.ended) == (3.0, 4.0)


def test_a_request_that_comes_during_a_step_joins_the_next() -> None:
    records = run([job(0, 0.0, 20, 9), job(1, 2.5, 20, 2)]).records
    assert (records[1].first, records[1].ended) == (4.0, 5.0)


def test_without_slots_the_second_waits_for_the_end_of_the_first() -> None:
    # With overlap the step after the first one's last is planned before its end is known: one step is lost.
    records = run([job(0, 0.0, 20, 3), job(1, 0.0, 20, 1)], slots=1).records
    assert records[0].ended == 3.0
    assert records[1].first == pytest.approx(4.0, abs=1.0)


def test_an_urgent_request_takes_the_slot_at_once_only_under_our_policy() -> None:
    jobs = [job(0, 0.0, 20, 30, level=3), job(1, 4.5, 20, 2, level=1)]
    first = {name: run(jobs, name, slots=1).records[1].first for name in POLICY_NAMES}
    assert first["ours"] == 6.0
    assert all(first[name] >= 31.0 for name in ("fcfs", "vllm", "no_evict"))


def test_who_is_preempted_starves_while_the_urgent_one_runs_and_loses_no_token() -> None:
    jobs = [job(0, 0.0, 20, 30, level=3), job(1, 4.5, 20, 10, level=1)]
    finished = run(jobs, slots=1)
    assert finished.scheduler.by_urgent == {0: 1}
    assert not finished.scheduler.by_own
    assert sum(finished.watch.gaps[3].values()) == 29
    assert 10.0 <= finished.watch.starved[3] <= 13.0


def test_a_level_that_outgrows_the_pool_preempts_itself_unless_its_end_is_reserved() -> None:
    jobs = [job(n, 0.0, 2600, 400) for n in range(3)]  # 9,000 tokens at their ends, in a pool of 8,192
    by_own = {name: sum(run(jobs, name).scheduler.by_own.values()) for name in POLICY_NAMES}
    assert by_own["no_evict"] == 0
    assert min(by_own["ours"], by_own["vllm"], by_own["fcfs"]) >= 1


def test_computing_again_counts_as_useless_and_swapping_does_not() -> None:
    jobs = [job(n, 0.0, 2600, 400) for n in range(3)]
    swapped, recomputed = run(jobs, "ours").figures(), run(jobs, "vllm").figures()
    assert swapped["swapped_blocks"] > 0
    assert swapped["useful"] > 0.999
    assert recomputed["swapped_blocks"] == 0
    assert recomputed["useful"] < 0.999


def test_waste_is_the_slots_that_are_held_and_hold_nothing() -> None:
    # The 8th and the 16th step are looked at: 107 tokens in seven blocks of 16, then 115 in eight.
    waste = run([job(0, 0.0, prompt=100, output=20)], pool_tokens=8192).figures()["waste"]
    assert waste["mean"] == pytest.approx((5 + 13) / 2 / 8192)
    assert waste["max"] == pytest.approx(13 / 8192)


def test_a_shared_system_prompt_is_computed_once() -> None:
    jobs = [job(n, 5.0 * n, prompt=100, output=2, prefix=0) for n in range(3)]
    finished = run(jobs)
    assert finished.watch.computed == 3 * (100 + 1) - 2 * 64
    assert finished.watch.recomputed == 0


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_all_requests_of_a_mix_end_and_the_pool_is_empty_after(policy: str) -> None:
    finished = run(Mix().jobs(7, 60), policy, slots=16, pool_tokens=9000, mix=Mix())
    assert all(r.ended >= r.first >= r.job.arrived for r in finished.records)
    tokens = sum(sum(gaps.values()) for gaps in finished.watch.gaps.values()) + len(finished.jobs)
    assert tokens == sum(j.output for j in finished.jobs)
    assert finished.scheduler.pool.num_held == 0
    finished.scheduler.check_integrity()


def test_the_same_seed_gives_the_same_figures_and_another_seed_others() -> None:
    def figures(seed: int) -> dict[str, object]:
        found = run(Mix().jobs(seed, 12, 0.5), slots=8, pool_tokens=9000, mix=Mix()).figures()
        return {key: value for key, value in found.items() if key not in ("wall", "processor")}

    assert figures(1) == figures(1)
    assert figures(1) != figures(2)


def test_the_idle_server_needs_as_many_steps_as_the_prompt_has_chunks() -> None:
    jobs = [job(n, 0.0, prompt=40 * (n + 1), output=50, level=1) for n in range(4)]
    jobs.append(job(4, 0.0, prompt=4000, output=50, level=2))
    assert idle_ttft(ticking(slots=4, step_tokens=40), MIX, jobs) == {"ttft_p50": 2.0, "ttft_p99": 4.0}


def test_only_arrival_times_depend_on_the_rate() -> None:
    slow, fast = (Mix().jobs(3, 50, rate) for rate in (1.0, 10.0))
    assert [j._replace(arrived=0.0) for j in slow] == [j._replace(arrived=0.0) for j in fast]
    assert slow[-1].arrived == pytest.approx(10 * fast[-1].arrived)
