"""Slopes of made-up series."""

from __future__ import annotations

import random

import pytest

from scripts.soaking.leaks import SHORTEST_SLOPE_SECONDS, growth, leak


def series(per_minute, seconds=600, noise=0.0, jump_at=None):
    rng = random.Random(1)
    return [
        (float(at), 500.0 + per_minute * at / 60 + rng.uniform(-noise, noise) + (300.0 if at == jump_at else 0.0))
        for at in range(0, seconds + 1, 5)
    ]


@pytest.mark.parametrize("per_minute", [-3.0, 0.0, 0.5, 2.0, 40.0])
def test_the_slope_is_found_under_noise_and_one_odd_value_does_not_matter(per_minute):
    assert growth(series(per_minute)).per_minute == pytest.approx(per_minute)
    assert growth(series(per_minute, noise=5.0, jump_at=590)).per_minute == pytest.approx(per_minute, abs=0.4)


def test_growth_beyond_the_allowed_is_a_leak_and_below_it_is_none():
    assert leak(series(0.9), per_minute=1.0, at_once=1e9) == ""
    assert leak(series(1.1), per_minute=1.0, at_once=1e9) == "grows by 1.10 a minute"
    assert leak(series(-50.0), per_minute=1.0, at_once=1e9) == ""


def test_a_short_series_is_judged_by_what_it_grew_in_all():
    short = int(SHORTEST_SLOPE_SECONDS) // 2
    assert leak(series(20.0, seconds=short), per_minute=1.0, at_once=60.0) == ""
    assert leak(series(20.0, seconds=short), per_minute=1.0, at_once=40.0) == "grew by 50.0 in 150 s"


@pytest.mark.parametrize("points", [[], [(1.0, 5.0)], [(1.0, 5.0), (1.0, 6.0)]])
def test_what_was_not_watched_is_not_good(points):
    assert leak(points, per_minute=1.0, at_once=1.0).startswith("not watched")
