"""The watch on fair shares, by hand, and that it tells a fair scheduler from an unfair one."""

from __future__ import annotations

from scripts.simulation.fairness import FairnessWatch

from .toys import job, run


def watch() -> FairnessWatch:
    return FairnessWatch([(1, "a"), (1, "b"), (2, "a")], input_weight=1.0, output_weight=2.0)


def test_service_counts_only_while_both_wait() -> None:
    seen = watch()
    seen.served[0] = 1000.0  # alone so far
    seen.arrived(0)
    seen.arrived(1)
    seen.served[0] += 30
    seen.check()
    seen.served[1] += 50
    seen.check()
    assert seen.worst == {1: 50.0, 2: 0.0}  # 30 ahead, then 20 behind: it drifted by 50
    seen.started(1, 0)
    seen.served[0] += 500
    seen.check()
    assert seen.worst[1] == 50.0


def test_levels_are_not_compared() -> None:
    seen = watch()
    seen.arrived(0)
    seen.arrived(2)
    seen.served[0] += 500
    seen.check()
    assert seen.worst == {1: 0.0, 2: 0.0}


def test_the_bound_is_that_of_the_paper() -> None:
    assert watch().bound(longest_input=300, pool_tokens=100) == 2 * 300
    assert watch().bound(longest_input=100, pool_tokens=200) == 2 * 400


def test_two_tenants_of_unequal_demand_are_served_alike_by_ours_and_by_demand_elsewhere() -> None:
    """ "a" asks for nine times as much; all of it is there at once."""
    jobs = [job(n, 0.0, 64, 32, tenant="b" if n % 10 == 9 else "a") for n in range(100)]
    worst = {name: run(jobs, name, slots=4).figures()["fairness"]["worst"] for name in ("ours", "vllm")}
    # One request is worth 64 + 2 * 32 = 128; four run at a time, and counters lag by up to a block of 16.
    assert worst["ours"] <= 4 * 128
    assert worst["vllm"] >= 8 * worst["ours"] / 4
    assert run(jobs, "ours").figures()["fairness"]["share"] < 1
