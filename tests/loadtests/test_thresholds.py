"""A run is good enough when every threshold holds, and what was not measured is not good enough."""

import math

import pytest

from loadtests import thresholds
from loadtests.profiles import PROFILES
from scripts.loadtest import ROOT

FILE = """
[[threshold]]
profile = "burst"
entry = "ttft level 1"
statistic = "p95"
max = 100

[[threshold]]
profile = "all"
entry = "tokens/s level 1"
statistic = "average"
min = 5
"""


def entry(name, kind="figure", **values):
    return thresholds.Entry(kind=kind, name=name, value=values.__getitem__)


def judged(tmp_path, *entries, profile="burst"):
    (tmp_path / "file.toml").write_text(FILE)
    return thresholds.judge(thresholds.load(tmp_path / "file.toml", profile), entries)


@pytest.mark.parametrize(
    ("ttft", "speed", "passed"),
    [(100, 5, [True, True]), (100.1, 4.9, [False, False]), (math.nan, math.nan, [False, False])],
)
def test_the_bounds_themselves_are_good_enough_and_what_is_beyond_or_no_number_is_not(tmp_path, ttft, speed, passed):
    verdicts = judged(tmp_path, entry("ttft level 1", p95=ttft), entry("tokens/s level 1", average=speed))
    assert [verdict.passed for verdict in verdicts] == passed


def test_every_door_is_held_to_the_threshold(tmp_path):
    doors = entry("ttft level 1", "grpc", p95=50), entry("ttft level 1", "http", p95=150)
    verdicts = judged(tmp_path, *doors, entry("tokens/s level 1", average=9))
    assert [str(verdict) for verdict in verdicts] == [
        "pass  ttft level 1: p95 at most 100: 50 (grpc)",
        "MISS  ttft level 1: p95 at most 100: 150 (http)",
        "pass  tokens/s level 1: average at least 5: 9 (figure)",
    ]


def test_what_was_not_measured_is_a_miss(tmp_path):
    (verdict,) = judged(tmp_path, entry("ttft level 1", p95=1), profile="chat")
    assert not verdict.passed
    assert str(verdict) == "MISS  tokens/s level 1: average at least 5: no figures"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "KeyError"),
        ("[[", "TOMLDecodeError"),
        (
            '[[threshold]]\nprofile = "slow"\nentry = "e"\nstatistic = "p95"\nmax = 1',
            "no threshold for the profile burst",
        ),
        ('[[threshold]]\nprofile = "burst"\nentry = "e"\nmax = 1', "no 'statistic'"),
        ('[[threshold]]\nprofile = "burst"\nentry = "e"\nstatistic = "p50"\nmax = 1', "statistic 'p50' is none of"),
        ('[[threshold]]\nprofile = "burst"\nentry = "e"\nstatistic = "p95"', "needs one of max and min"),
        (
            '[[threshold]]\nprofile = "burst"\nentry = "e"\nstatistic = "p95"\nmax = 1\nmin = 1',
            "needs one of max and min",
        ),
        ('[[threshold]]\nprofile = "burst"\nentry = "e"\nstatistic = "p95"\nmx = 1', "unknown key 'mx'"),
    ],
)
def test_a_file_that_says_nothing_or_something_else_is_refused(tmp_path, text, why):
    (tmp_path / "file.toml").write_text(text)
    with pytest.raises(thresholds.ThresholdError, match=why):
        thresholds.load(tmp_path / "file.toml", "burst")


@pytest.mark.parametrize("profile", PROFILES)
def test_the_files_own_thresholds_are_of_levels_that_the_profile_has(profile):
    levels = {f"level {kind.level}" for kind in PROFILES[profile].kinds}
    for threshold in thresholds.load(ROOT / "loadtests" / "thresholds.toml", profile):
        assert any(threshold.entry.endswith(level) for level in levels)
