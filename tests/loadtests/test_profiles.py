"""What the profiles draw."""

from random import Random

import pytest

from loadtests import asks
from loadtests.profiles import PROFILES


def drawn(profile, count=400, seed=1):
    random = Random(seed)
    return [asks.draw(PROFILES[profile].draw(random, number), random) for number in range(count)]


def test_the_same_seed_draws_the_same_requests_and_another_one_others():
    assert drawn("burst") == drawn("burst")
    assert drawn("burst") != drawn("burst", seed=2)


@pytest.mark.parametrize("profile", PROFILES)
def test_lengths_levels_and_manners_are_those_of_the_kinds(profile):
    kinds = PROFILES[profile].kinds
    requests = drawn(profile)
    assert {one.level for one in requests} == {kind.level for kind in kinds}
    assert {one.read_seconds for one in requests} == {kind.read_seconds for kind in kinds}
    for one in requests:
        assert any(
            (one.level, one.read_seconds) == (kind.level, kind.read_seconds)
            and kind.tokens[0] <= one.tokens <= kind.tokens[1]
            and kind.words[0] <= len(one.prompt.split()) - 2 - len(kind.opening.split()) <= kind.words[1]
            for kind in kinds
        )


def test_of_those_that_may_leave_seven_in_ten_do():
    left = [one.leaves_after for one in drawn("abandon", 2000) if one.level == 3]
    assert sum(each is not None for each in left) / len(left) == pytest.approx(0.7, abs=0.05)
    assert {each for each in left if each is not None} == set(range(1, 13))
    assert all(one.leaves_after is None for profile in ("chat", "burst", "slow") for one in drawn(profile))


def test_a_burst_comes_at_once_whenever_its_users_were_ready():
    burst = PROFILES["burst"]
    starts = [now + burst.wait(Random(0), now) for now in (1000.0, 1003.2, 1009.9)]
    assert starts == [pytest.approx(1010.0)] * 3


def test_tiny_has_every_level_among_its_first_requests_whatever_the_seed():
    for seed in range(5):
        assert [one.level for one in drawn("tiny", 3, seed)] == [1, 2, 3]


def test_others_pause_for_as_long_as_their_profile_says():
    chat = PROFILES["chat"]
    pauses = [chat.wait(Random(seed), 1000.0) for seed in range(200)]
    assert 1.0 <= min(pauses) < 1.5
    assert 4.5 < max(pauses) <= 5.0
