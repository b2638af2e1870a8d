"""Whom to preempt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from backend.request import Sequence
from backend.scheduler.costs import PreemptionCosts


class Gain(Protocol):
    """Counts the blocks that a set of victims makes available together; adding one costs its own blocks only."""

    @property
    def blocks(self) -> int:
        """Blocks that become available."""

    def add(self, victim: Sequence) -> None:
        """One more."""

    def remove(self, victim: Sequence) -> None:
        """One less."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing: slots and pool blocks."""

    slots: int
    blocks: int

    @property
    def none(self) -> bool:
        """Nothing is missing."""
        return self.slots <= 0 and self.blocks <= 0


class VictimChooser:
    """Chooses among candidates; changes nothing.

    Order: lowest level first; inside a level first those below the cap on preemptions, then those that lose least by
    the cost model, the newest first on ties.
    """

    def __init__(self, costs: PreemptionCosts, cap: int) -> None:
        self._costs = costs
        self._cap = cap

    def choose(
        self, candidates: Iterable[Sequence], shortage: Shortage, gain: Callable[[], Gain]
    ) -> list[Sequence] | None:
        """The fewest that suffice, in that order; None if all together do not: then none is to be touched.

        gain: makes an empty count of the blocks that victims make available.
        """
        chosen, together = list[Sequence](), gain()
        for candidate in sorted(candidates, key=self._key):
            if _suffice(_slots(chosen), shortage, together):
                break
            chosen.append(candidate)
            together.add(candidate)
        if not _suffice(_slots(chosen), shortage, together):
            return None
        return self._alone(candidates, chosen, shortage, gain()) or _without_the_needless(chosen, shortage, together)

    def _alone(
        self, candidates: Iterable[Sequence], chosen: list[Sequence], shortage: Shortage, gain: Gain
    ) -> list[Sequence] | None:
        """One who suffices alone in place of several, if it is no more urgent than the most urgent of those."""
        if len(chosen) < 2 or shortage.slots > 1:
            return None
        level = min(victim.request.level for victim in chosen)
        for candidate in sorted((c for c in candidates if c.request.level >= level), key=self._key):
            gain.add(candidate)
            if _suffice(1, shortage, gain):
                return [candidate]
            gain.remove(candidate)
        return None

    def _key(self, sequence: Sequence) -> tuple[int, bool, float, int]:
        request = sequence.request
        loss = self._costs.loss(sequence.num_kept, len(sequence.held))
        return -request.level, sequence.num_preemptions >= self._cap, loss, -request.arrival


def _suffice(slots: int, shortage: Shortage, gain: Gain) -> bool:
    return slots >= shortage.slots and gain.blocks >= shortage.blocks


def _slots(victims: list[Sequence]) -> int:
    return sum(victim.slots for victim in victims)


def _without_the_needless(victims: list[Sequence], shortage: Shortage, gain: Gain) -> list[Sequence]:
    """Spare the most valuable of them whom the others make up for."""
    needed, slots = [], _slots(victims)
    for victim in reversed(victims):
        gain.remove(victim)
        if _suffice(slots - victim.slots, shortage, gain):
            slots -= victim.slots
        else:
            gain.add(victim)
            needed.append(victim)
    return needed[::-1]
