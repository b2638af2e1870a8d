"""One request, drawn from its kind; the same seed draws the same requests."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .profiles import Kind

WORDS = (
    "river stone winter paper engine garden signal copper market letter bridge forest window summer "
    "morning harbour silver number circle method record answer journey village teacher weather table "
    "music science history station machine planet island mountain ocean kitchen doctor library street"
).split()


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What is sent, and how its reader behaves.

    tokens: of the answer, exactly (no end of sequence ends it earlier). leaves_after: the reader leaves after so many
    responses, None stays. read_seconds: spent over each response.
    """

    prompt: str
    tokens: int
    level: int
    leaves_after: int | None = None
    read_seconds: float = 0.0


def draw(kind: Kind, random: Random) -> Ask:
    """A request of this kind. No two prompts share more than the kind's opening, but for chance."""
    words = " ".join(random.choices(WORDS, k=random.randint(*kind.words)))
    return Ask(
        prompt=f"{kind.opening} Note {random.getrandbits(32)}: {words}.".strip(),
        tokens=random.randint(*kind.tokens),
        level=kind.level,
        leaves_after=random.randint(*kind.leaves_after) if random.random() < kind.abandons else None,
        read_seconds=kind.read_seconds,
    )
