"""Who runs in this step. State in, a frozen StepPlan out; no torch, no numpy, no clock of its own.

One pass per step::

    decodes     one token for each sequence that decodes; who cannot grow preempts whoever stands behind it
    chunks      prompt chunks (and what a preemption left to be computed again), most urgent first
    admission   the waiting, in their order; a more urgent one may preempt less urgent ones that run

Liveness. Let s be the oldest running sequence of the most urgent running level. When s needs a block and none is
available, every other running sequence is a candidate (less urgent, or newer; those at the cap on preemptions too, as a
last resort), and s alone always fits the pool, which ``check_fits`` made sure of. So s advances in every step, hence
ends, and the next becomes the oldest: nothing livelocks. Who waits is ordered by (level, share, arrival), and a
preempted sequence keeps its arrival, so within a level and tenant the oldest is always the next to run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import attrgetter

from backend.endings import FinishReason
from backend.kv.block_pool import BlockPool, PoolIntegrityError
from backend.kv.host_pool import HostPool
from backend.request import Request, Sequence, State
from backend.scheduler.admission import Admission
from backend.scheduler.beams import Beams
from backend.scheduler.costs import PreemptionCosts
from backend.scheduler.draft import StepDraft
from backend.scheduler.limits import check_fits
from backend.scheduler.plan import StepPlan, TokenOutput
from backend.scheduler.population import Population
from backend.scheduler.preemption import Shortage, VictimChooser
from backend.scheduler.residency import Residency
from backend.scheduler.results import Results
from backend.scheduler.settings import SchedulerSettings
from backend.scheduler.step_time import StepTime

_ORDER = attrgetter("order")
# After an interruption another one is likely, and what an interrupted step has computed is lost: for so long, steps are
# kept short as if none could be interrupted.
_CALM_SECONDS = 10.0
RECOMPUTE_ONLY = PreemptionCosts(seconds_per_token=1.0, seconds_per_block=1.0, mode="recompute")


class Scheduler:
    """Decides; ``population`` holds who waits and runs, ``residency`` what they hold."""

    def __init__(
        self,
        settings: SchedulerSettings,
        pool: BlockPool,
        host: HostPool | None = None,
        costs: PreemptionCosts = RECOMPUTE_ONLY,
    ) -> None:
        self.settings = settings
        self.pool = pool
        self.residency = Residency(settings, pool, host or HostPool(0), costs)
        self.population = Population(settings, self.residency)
        self.step_time = StepTime()
        self._chooser = VictimChooser(costs, settings.preemption_cap)
        self._beams = Beams(self.population, self._make_room, self._preempt)
        self._results = Results(settings, self.population, self._beams)
        self._step = 0
        self._launched = 0
        self._interrupted_at = -math.inf
        self._cleared = 0

    # --- requests come and go

    @property
    def has_work(self) -> bool:
        """Whether a step would find anything to do."""
        return bool(self.population.num_running or len(self.population.waiting))

    @property
    def running(self) -> list[Sequence]:
        """The sequences that hold a slot."""
        return self.population.running

    @property
    def num_waiting(self) -> int:
        """Sequences without a slot."""
        return len(self.population.waiting)

    def check_fits(self, request: Request) -> None:
        """Raise InvalidRequest, with what is needed and what there is, if the request could never run."""
        check_fits(request, self.settings, self.pool.num_usable)

    def add(self, request: Request) -> Sequence:
        """Queue a request. Raises InvalidRequest if it could never run; nothing is kept of it then."""
        self.check_fits(request)
        return self.population.add(request)

    def end(self, sequence: Sequence, reason: FinishReason) -> bool:
        """End a sequence in whatever state it is; False if it had ended before. Safe to call any number of times."""
        return self.population.end(sequence, reason, self._launched)

    def expire(self, now: float) -> list[Sequence]:
        """End what is past its deadline, waiting or running; returns those."""
        return [s for s in self.population.overdue(now) if self.end(s, FinishReason.TIMEOUT)]

    # --- one step

    def schedule(self, now: float = 0.0) -> StepPlan:
        """Decide one step. Cursors move here, before it has run; blocks are allocated before anything is launched."""
        self._step += 1
        hurried = not self.settings.interruptible or now - self._interrupted_at < _CALM_SECONDS
        draft = StepDraft(self.settings, self.population, self.step_time, hurried)
        growing = draft.add_decodes(self.population.decoding.values())
        if growing:
            self._grow(growing, draft)
        if self.population.beams:
            self._beams.plan(draft)
        # Prompts less urgent than someone who waits come after him, and lengthen his step as little as they may.
        draft.add_left_out(self.population.waiting.most_urgent())
        if len(self.population.waiting):
            self._admit(now, draft)
            draft.add_left_out()
        self._beams.take_copies()
        copies, searches = self.residency.take_copies(), bool(self.population.beams)
        plan = StepPlan(self._step, draft.decodes, draft.chunks, copies, searches)
        if not plan.empty:
            self._launched = self._step
        return plan

    def _grow(self, growing: list[Sequence], draft: StepDraft) -> None:
        """A block for each, in order; whoever cannot have one preempts those behind it, or yields itself."""
        for sequence in sorted(growing, key=_ORDER):
            if sequence.state is not State.RUNNING:
                continue  # preempted by one before it
            if self.residency.available(sequence) < 1 and not self._make_room(sequence, 1, draft):
                self._preempt(sequence, draft)
                continue
            self.residency.grow(sequence)
            sequence.num_computed += 1
            draft.decodes.append(sequence)

    def _make_room(self, sequence: Sequence, blocks: int, draft: StepDraft) -> bool:
        """Preempt whoever stands behind a running sequence so that it can grow by so many blocks."""
        running = self.population.running
        shortage = Shortage(0, blocks - self.residency.available(sequence))
        behind = [other for other in running if other.order > sequence.order]
        takeable = [other for other in behind if self._may_be_taken(other, sequence)]
        victims = self._chooser.choose(takeable, shortage, self.residency.gain)
        if victims is None and sequence.order == min(other.order for other in running):
            victims = self._chooser.choose(behind, shortage, self.residency.gain)
        for victim in victims or ():
            self._preempt(victim, draft)
        return victims is not None

    def _may_be_taken(self, other: Sequence, by: Sequence) -> bool:
        """The cap protects a sequence from its own level's growth, not from more urgent levels."""
        return other.request.level > by.request.level or other.num_preemptions < self.settings.preemption_cap

    def _preempt(self, sequence: Sequence, draft: StepDraft) -> None:
        draft.drop(sequence)
        self.population.preempt(sequence, self._launched)

    def _admit(self, now: float, draft: StepDraft) -> None:
        computing = {chunk.sequence for chunk in draft.chunks}
        admission = Admission(self.settings, self.population, self.residency, self._chooser, computing)
        while (draft.budget > 0 or draft.decodes or draft.chunks) and (entry := admission.next(now)) is not None:
            if draft.budget < 1 and not draft.can_take_tokens(entry.sequence):
                admission.pass_over(entry.sequence)
                continue
            for victim in entry.victims:
                self._preempt(victim, draft)
            if entry.leader is not None:
                self.residency.fork(entry.sequence, entry.leader, entry.reserve)
            else:
                self.residency.bring_in(entry.sequence, entry.hits, entry.reserve, self._step)
            self.population.enter(entry.sequence)
            entry.sequence.first_scheduled = entry.sequence.first_scheduled or now
            admission.entered(entry)
            draft.add_chunk(entry.sequence)
            # So its first token comes as from an idle server. Never twice running: a stream loses one step at a time.
            if self._step > self._cleared + 1 and draft.clear_the_way(entry.sequence):
                self._cleared = self._step
        admission.close()

    # --- what a step brought

    def finished(self, step: int) -> None:
        """Step ``step`` and all before it have finished on the device: what they touched may be reused."""
        self.pool.complete(step)
        self.residency.host.complete(step)

    def retract(self, plan: StepPlan, now: float) -> None:
        """A step was ended early: cursors go back to where it began. Its copies have been made, and blocks stay."""
        self._interrupted_at = now
        for sequence in plan.decodes:
            if sequence.state is State.RUNNING:
                sequence.num_computed -= 1
        for chunk in plan.chunks:
            if chunk.sequence.state is State.RUNNING:
                chunk.sequence.num_computed = chunk.start
                if chunk.samples and chunk.sequence.owner is chunk.sequence:
                    self.population.prefill(chunk.sequence)

    def commit(self, plan: StepPlan, tokens: Iterable[int]) -> list[TokenOutput]:
        """Take in a finished step's tokens, in the order of ``plan.sampling()``: append, end, publish blocks.

        Tokens of sequences that have ended since are dropped; those of preempted ones are kept.
        """
        return self._results.commit(plan, tokens, self._launched)

    def fail(self, plan: StepPlan) -> list[Sequence]:
        """A step failed, or never began: end those it computed for, and distrust every copy it was to make.

        Returns the sequences ended.
        """
        touched = dict.fromkeys(sequence.owner for sequence in plan.sequences)
        ended = [s for s in touched if self.end(s, FinishReason.ERROR)]
        for sequence in plan.copies.moved:
            if sequence.state is State.RUNNING:
                self.population.preempt(sequence, self._launched)
            if sequence.state is State.WAITING:
                self.residency.drop_host_copy(sequence, self._launched)
        return ended

    def check_integrity(self) -> None:
        """Raise PoolIntegrityError unless all books agree. Tests call it after every step."""
        self.population.check_integrity()
        if self.population.num_running > self.settings.max_batch_size:
            raise PoolIntegrityError("more sequences run than there are slots")
