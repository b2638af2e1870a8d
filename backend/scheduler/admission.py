"""Admission: which waiting sequence may enter now, and over whom. Decides; changes nothing but who is hidden."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from backend.kv.prefix_cache import Node
from backend.request import Sequence, State
from backend.scheduler.population import Population
from backend.scheduler.preemption import Shortage, VictimChooser
from backend.scheduler.residency import Residency
from backend.scheduler.settings import SchedulerSettings

_MOST_PASSED_OVER = 32
"""Sequences that may be passed over in one pass: looking through a long queue in every step costs time."""


class Entry(NamedTuple):
    """How a sequence can enter: with which cached blocks, reserved to its end or not, over which victims.

    leader: the running sequence whose prompt it shares instead, or None.
    """

    sequence: Sequence
    hits: list[Node]
    reserve: bool
    victims: list[Sequence]
    leader: Sequence | None


class Admission:
    """One pass over the waiting; made anew for each step. ``close`` puts back who was passed over."""

    def __init__(
        self,
        settings: SchedulerSettings,
        population: Population,
        residency: Residency,
        chooser: VictimChooser,
        computing: Collection[Sequence],
    ) -> None:
        """computing: sequences of which this step computes a chunk, decided before."""
        self._settings = settings
        self._population = population
        self._residency = residency
        self._chooser = chooser
        self._computing = computing
        self._entered: set[Sequence] = set()
        self._untouchable: set[Sequence] = set()
        self._passed_over: list[Sequence] = []

    def next(self, now: float) -> Entry | None:
        """The next to enter. Who cannot keeps out all but the strictly more urgent, so the large do not starve."""
        while len(self._passed_over) < _MOST_PASSED_OVER and (found := self._first(now)) is not None:
            if isinstance(found, Entry):
                return found
            self.pass_over(found)
        return None

    def pass_over(self, sequence: Sequence) -> None:
        """Look behind a candidate for the rest of this pass."""
        self._population.waiting.hide(sequence)
        self._passed_over.append(sequence)

    def entered(self, entry: Entry) -> None:
        """An entry has been carried out. Its copies have not: neither end of them may be taken away in this step."""
        self._entered.add(entry.sequence)
        self._untouchable.add(entry.sequence)
        if entry.leader is not None:
            self._untouchable.add(entry.leader)

    def close(self) -> None:
        """End the pass."""
        for sequence in self._passed_over:
            self._population.waiting.unhide(sequence)

    def _first(self, now: float) -> Entry | Sequence | None:
        """An entry; or a sequence to be passed over, as it waits for something that is under way; or None."""
        barrier: int | None = None
        for sequence in self._population.waiting.candidates(now):
            if barrier is not None and sequence.request.level >= barrier:
                continue
            if sequence.awaits_token:  # for one step; nobody may take meanwhile what it gave up
                barrier = sequence.request.level
                continue
            leader = self._population.leader_of(sequence)
            if leader is not None and not self._settled(leader):
                return sequence
            hits = [] if leader is not None else self._residency.hits(sequence)
            if leader is None and self._residency.being_computed_for(sequence, hits):
                return sequence
            entry = self._entry(sequence, hits, leader)
            if entry is not None:
                return entry
            barrier = sequence.request.level
        return None

    def _settled(self, leader: Sequence) -> bool:
        """Whether a leader's whole prompt is in the pool before this step begins."""
        running = leader.state is State.RUNNING and leader not in self._entered
        return running and leader.num_computed >= leader.num_prompt and leader not in self._computing

    def _entry(self, sequence: Sequence, hits: list[Node], leader: Sequence | None) -> Entry | None:
        """Proven before anything is touched: slots and blocks suffice, with the victims' if need be."""
        settings, residency = self._settings, self._residency
        reserve = settings.guaranteed_no_evict or sequence.num_preemptions >= settings.preemption_cap
        slots = self._population.num_running + sequence.slots - settings.max_batch_size
        spare = residency.available(sequence) - residency.needed(sequence, hits, reserve)
        if leader is not None:
            spare += residency.prompt_blocks(sequence)
        if slots <= 0 and spare >= self._kept_free():
            return Entry(sequence, hits, reserve, [], leader)
        level = sequence.request.level
        running = self._population.running
        lower = [s for s in running if s.request.level > level and s not in self._untouchable and s is not leader]
        if not (settings.preemption and lower):
            return None
        kept = frozenset(node.block for node in hits)
        victims = self._chooser.choose(lower, Shortage(slots, -spare), lambda: residency.gain(kept))
        return None if victims is None else Entry(sequence, hits, reserve, victims, leader)

    def _kept_free(self) -> int:
        """Blocks that admission leaves to the growth of those that run."""
        if not self._population.num_running:
            return 0
        return int(self._residency.pool.num_usable * self._settings.free_block_reserve)
