"""In which order the disturbances come, and how far apart."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from scripts.launcher.supervisor import MOST_RESTARTS, STABLE_SECONDS

from .disturbances import FULL_SHM, HARSH, MILD, Disturbance
from .settings import Settings

MARGIN_SECONDS = 5.0
HARSH_PAUSE, MILD_PAUSE = (2.0, 5.0), (10.0, 20.0)
"""Seconds between two disturbances, the least and the most of what is drawn."""


class Step(NamedTuple):
    """pause: seconds to wait first. after_restart: as many since the last restart, if that is later."""

    what: Disturbance
    pause: float
    after_restart: float = 0.0


def chaos(settings: Settings, random: Random, *, bounded: bool) -> Iterator[Step]:
    """Every kind in each round, in an order of its own: one round in a short run, without an end in a long one.

    In a long run restarts are so far apart that the supervisor takes none for one of a row. bounded: whether shared
    memory can be filled.
    """
    kinds = [what for what in HARSH if bounded or what is not FULL_SHM]
    # A full shared memory may cost the server its life, too.
    assert sum(what.restarts for what in kinds) + bounded <= MOST_RESTARTS
    apart = STABLE_SECONDS + MARGIN_SECONDS if settings.is_long else 0.0
    while True:
        for what in random.sample(kinds, len(kinds)):
            yield Step(what, random.uniform(*HARSH_PAUSE), apart if what.excuses else 0.0)
        if not settings.is_long:
            return


def steady(random: Random) -> Iterator[Step]:
    """Those that nobody may suffer from, without an end."""
    while True:
        yield Step(random.choice(MILD), random.uniform(*MILD_PAUSE))
