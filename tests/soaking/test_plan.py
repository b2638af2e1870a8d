"""The order of the disturbances, and what is read from the page of metrics."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from scripts.launcher.supervisor import MOST_RESTARTS, STABLE_SECONDS
from scripts.soaking import plan
from scripts.soaking.disturbances import FULL_SHM, HARSH, MILD
from scripts.soaking.engine_figures import EngineFigures
from scripts.soaking.settings import Settings


def settings(minutes):
    return Settings(minutes=minutes, seed=0, model="smollm2")


@pytest.mark.parametrize("seed", range(5))
def test_a_short_run_does_everything_once_and_asks_no_more_restarts_than_the_supervisor_gives(seed):
    steps = list(plan.chaos(settings(3), Random(seed), bounded=True))
    assert {step.what.name for step in steps} == {what.name for what in HARSH}
    assert len(steps) == len(HARSH)
    assert sum(step.what.restarts for step in steps) + 1 <= MOST_RESTARTS
    assert steps == list(plan.chaos(settings(3), Random(seed), bounded=True))


def test_without_a_bound_shared_memory_is_left_alone():
    assert FULL_SHM not in [step.what for step in plan.chaos(settings(3), Random(1), bounded=False)]


def test_in_a_long_run_no_restart_is_in_a_row_with_another():
    steps = list(itertools.islice(plan.chaos(settings(30), Random(1), bounded=True), 40))
    assert all(step.after_restart > STABLE_SECONDS for step in steps if step.what.restarts)
    assert {step.what.name for step in steps[:8]} == {step.what.name for step in steps[8:16]}


def test_in_the_steady_phase_nothing_is_done_that_excuses_a_failure():
    steps = list(itertools.islice(plan.steady(Random(1)), 40))
    assert {step.what.name for step in steps} == {what.name for what in MILD}
    assert not any(step.what.excuses for step in steps)


PAGE = """
# TYPE inflight_requests_total counter
inflight_requests_total{level="1",model="m",outcome="length",version="1"} 3
inflight_requests_total{level="2",model="m",outcome="length",version="1"} 4
inflight_requests_total{level="none",model="m",outcome="refused",version="1"} 2
inflight_running_sequences{model="m",version="1"} 0
inflight_waiting_sequences{model="m",version="1"} 0
inflight_swapped_sequences{model="m",version="1"} 0
inflight_pool_blocks{model="m",version="1"} 128
inflight_pool_blocks_used{model="m",version="1"} 0
inflight_pool_blocks_cached{model="m",version="1"} 28
inflight_pool_blocks_free{model="m",version="1"} 100
"""


def test_the_engines_figures_are_read_from_the_page():
    figures = EngineFigures.parsed(PAGE)
    assert figures.outcomes == {"length": 7, "refused": 2}
    assert figures.idle
    assert not EngineFigures.parsed(
        PAGE.replace('_used{model="m",version="1"} 0', '_used{model="m",version="1"} 1')
    ).idle
    assert not EngineFigures.parsed(PAGE.replace("} 100\n", "} 99\n")).idle
    with pytest.raises(KeyError):
        EngineFigures.parsed("")
