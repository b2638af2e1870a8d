"""Whom to preempt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from backend.request import Sequence
from backend.scheduler.costs import PreemptionCosts

Gain = Callable[[list[Sequence]], int]


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

    def choose(self, candidates: Iterable[Sequence], shortage: Shortage, gain: Gain) -> list[Sequence] | None:
        """The fewest that suffice, in that order; None if all together do not: then none is to be touched.

        gain: blocks that a set of victims makes available together.
        """
        chosen: list[Sequence] = []
        for candidate in sorted(candidates, key=self._key):
            if _suffice(chosen, shortage, gain):
                break
            chosen.append(candidate)
        if not _suffice(chosen, shortage, gain):
            return None
        return self._alone(candidates, chosen, shortage, gain) or _without_the_needless(chosen, shortage, gain)

    def _alone(
        self, candidates: Iterable[Sequence], chosen: list[Sequence], shortage: Shortage, gain: Gain
    ) -> list[Sequence] | None:
        """One who suffices alone in place of several, if it is no more urgent than the most urgent of those."""
        if len(chosen) < 2:
            return None
        level = min(victim.request.level for victim in chosen)
        ordered = sorted((c for c in candidates if c.request.level >= level), key=self._key)
        return next(([c] for c in ordered if _suffice([c], shortage, gain)), None)

    def _key(self, sequence: Sequence) -> tuple[int, bool, float, int]:
        request = sequence.request
        loss = self._costs.loss(sequence.num_computed, len(sequence.blocks))
        return -request.level, sequence.num_preemptions >= self._cap, loss, -request.arrival


def _suffice(victims: list[Sequence], shortage: Shortage, gain: Gain) -> bool:
    return len(victims) >= shortage.slots and (shortage.blocks <= 0 or gain(victims) >= shortage.blocks)


def _without_the_needless(victims: list[Sequence], shortage: Shortage, gain: Gain) -> list[Sequence]:
    """Spare the most valuable of them whom the others make up for."""
    kept = list(victims)
    for victim in reversed(victims):
        rest = [other for other in kept if other is not victim]
        if _suffice(rest, shortage, gain):
            kept = rest
    return kept
