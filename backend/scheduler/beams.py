"""Beams: what a step does for the groups that search, and what it brings them.

A group in its prompt is scheduled like any sequence. From then on it has a step of its search to compute, one token for
each beam, whenever the step before is taken in; what a preemption has lost, it computes again in chunks first. It gets
blocks for all of its beams or for none: a group that cannot grow preempts whoever stands behind it, or yields as a
whole, so no group ever holds a part of what it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from backend.endings import FinishReason
from backend.request import Sequence, State
from backend.scheduler.draft import StepDraft
from backend.scheduler.plan import Chunk
from backend.scheduler.population import Population

_ORDER = attrgetter("order")


class Beams:
    """For one scheduler. make_room(root, blocks, draft): preempt so that so many blocks are there, or return False."""

    def __init__(
        self,
        population: Population,
        make_room: Callable[[Sequence, int, StepDraft], bool],
        preempt: Callable[[Sequence, StepDraft], None],
    ) -> None:
        self._population = population
        self._residency = population.residency
        self._make_room = make_room
        self._preempt = preempt

    def plan(self, draft: StepDraft) -> None:
        """The next step of each search whose branches stand ready, in the groups' order."""
        for root in sorted(self._population.beams.values(), key=_ORDER):
            group = root.group
            assert group is not None
            if root.state is not State.RUNNING or not group.ready:
                continue  # preempted by one before it, or still in its prompt
            missing = self._residency.beams.missing(group)
            if missing > self._residency.available(root) and not self._make_room(root, missing, draft):
                self._preempt(root, draft)
                continue
            self._residency.grow_beams(root)
            self._residency.beams.copy_tails(group)
            for branch in group.branches:
                draft.add_branch(branch)

    def take_copies(self) -> None:
        """Hand over the copies that are due: at the end of planning, as who is preempted on the way needs none."""
        copies = self._residency.copies
        for root in self._population.beams.values():
            assert root.group is not None
            if root.group.due:
                copies.within.extend(root.group.due)
                copies.moved.append(root)
                root.group.due = []

    def commit(self, chunk: Chunk, fence: int) -> FinishReason | None:
        """Take in what a chunk of a root or a branch has brought; why the group ends with it, if it does."""
        sequence, group = chunk.sequence, chunk.sequence.group
        assert group is not None
        assert sequence.details is not None
        detail = sequence.details.pop()
        if sequence.num_preemptions != chunk.epoch:
            return None  # brought by blocks that were taken meanwhile; it is asked for again
        found = group.take(sequence, detail.top)
        if found is None:
            return None
        steps = group.search.advance(found)
        self._population.shares.charge_beams(group.root, len(found))
        if group.search.ended:
            best = group.search.answers(FinishReason.LENGTH)
            group.root.problem = "" if best else group.search.problem
            return best[0].reason if best else FinishReason.ERROR
        self._residency.rearrange(group.root, steps, fence)
        return None
