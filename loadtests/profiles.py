"""The profiles: what kinds of request come, and when."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

CHAT_OPENING = "You are a helpful assistant. Answer briefly and say so when you do not know."


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of request; pairs are the least and the most of what is drawn.

    level: 1 is the most urgent. share: how often, in proportion to the other kinds. words, tokens: of the prompt and of
    the answer. abandons: the part of the requests that leave after `leaves_after` responses. read_seconds: how long the
    reader takes over each response.
    """

    level: int
    share: int = 1
    words: tuple[int, int]
    tokens: tuple[int, int]
    opening: str = ""
    abandons: float = 0.0
    leaves_after: tuple[int, int] = (1, 1)
    read_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Profile:
    """kinds: what comes, drawn, or with in_turn one after the other.

    pause: seconds between two requests of a user. every: all users wait for the next multiple of so many seconds.
    """

    kinds: tuple[Kind, ...]
    users: int
    pause: tuple[float, float] = (0.0, 0.0)
    every: float = 0.0
    in_turn: bool = False

    def draw(self, random: Random, number: int) -> Kind:
        """The kind of the next request; number: of the requests before it, and of the user among the users."""
        if self.in_turn:
            return self.kinds[number % len(self.kinds)]
        return random.choices(self.kinds, [kind.share for kind in self.kinds])[0]

    def wait(self, random: Random, now: float) -> float:
        """Seconds until the next request of a user whose last one ended at `now` (seconds since the epoch).

        Users of a profile with `every` start together: those that are ready wait for the same moment.
        """
        return self.every - now % self.every if self.every else random.uniform(*self.pause)


PROFILES = {
    "chat": Profile(
        users=8,
        pause=(1.0, 5.0),
        kinds=(Kind(level=2, words=(8, 60), tokens=(16, 64), opening=CHAT_OPENING),),
    ),
    "documents": Profile(
        users=4,
        pause=(0.0, 2.0),
        kinds=(Kind(level=2, words=(300, 900), tokens=(32, 96)),),
    ),
    "burst": Profile(
        users=12,
        every=10.0,
        kinds=(
            Kind(level=1, share=1, words=(8, 24), tokens=(8, 16)),
            Kind(level=2, share=3, words=(8, 60), tokens=(16, 48)),
            Kind(level=3, share=4, words=(60, 200), tokens=(32, 96)),
        ),
    ),
    "abandon": Profile(
        users=8,
        pause=(0.0, 0.5),
        kinds=(
            Kind(level=2, words=(8, 60), tokens=(16, 48)),
            Kind(level=3, words=(60, 200), tokens=(64, 128), abandons=0.7, leaves_after=(1, 12)),
        ),
    ),
    "slow": Profile(
        users=8,
        pause=(0.0, 1.0),
        kinds=(
            Kind(level=2, words=(8, 60), tokens=(16, 48)),
            Kind(level=2, words=(8, 60), tokens=(32, 64), read_seconds=0.5),
        ),
    ),
    # A few seconds, every level and a length known beforehand: what the tests run.
    "tiny": Profile(
        users=3,
        in_turn=True,
        kinds=tuple(Kind(level=level, words=(4, 8), tokens=(8, 8)) for level in (1, 2, 3)),
    ),
}
