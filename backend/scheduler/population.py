"""Population: which sequences wait, which run, and how one passes from state to state.

    add ──> WAITING ──enter──> RUNNING ──end──> FINISHED
               ^  └──────────end──────────────────^
               └───preempt───────┘

A running sequence is prefilling until all its known tokens are planned, then decoding.
"""

from __future__ import annotations

import heapq
from collections import Counter

from backend.endings import FinishReason
from backend.kv.block_pool import PoolIntegrityError
from backend.request import Request, Sequence, State
from backend.scheduler.beam_group import BeamGroup
from backend.scheduler.fair_share import FairShare
from backend.scheduler.life import Change, LifeWatch, unwatched
from backend.scheduler.residency import Residency
from backend.scheduler.settings import SchedulerSettings
from backend.scheduler.waiting_queue import WaitingQueue


class Population:
    """Owns the waiting queue, the running sets and the deadlines. Every change of a sequence's state is here.

    beams: of the running sequences those that search over beams.
    preemptions: (level, "swap" or "recompute") -> how many there were. num_paused: preempted sequences that wait.
    watch: is told of each change, when it has been made; it must be quick.
    """

    def __init__(self, settings: SchedulerSettings, residency: Residency) -> None:
        self.shares = FairShare(settings.input_weight, settings.output_weight)
        self.waiting = WaitingQueue(self.shares, settings.ageing_seconds)
        self.decoding: dict[int, Sequence] = {}
        self.prefilling: dict[int, Sequence] = {}
        self.beams: dict[int, Sequence] = {}
        self.num_paused = 0
        self.preemptions: dict[tuple[int, str], int] = {}
        self.watch: LifeWatch = unwatched
        self._open: dict[int, Sequence] = {}
        self.residency = residency
        self._deadlines: list[tuple[float, int]] = []

    @property
    def running(self) -> list[Sequence]:
        """The sequences that hold slots."""
        return [*self.decoding.values(), *self.prefilling.values()]

    @property
    def num_running(self) -> int:
        """Slots in use."""
        return len(self.decoding) + len(self.prefilling) + sum(root.slots - 1 for root in self.beams.values())

    @property
    def num_preemptions(self) -> int:
        """How many there were in all."""
        return sum(self.preemptions.values())

    def add(self, request: Request) -> Sequence:
        """A request arrives, and waits."""
        sequence = Sequence(request)
        if request.sampling.beams is not None:
            sequence.group = BeamGroup(sequence)
        self.shares.enter(sequence)
        self.waiting.push(sequence)
        self._open[request.request_id] = sequence
        if request.deadline is not None:
            heapq.heappush(self._deadlines, (request.deadline, request.request_id))
        self.watch(sequence, Change.QUEUED)
        return sequence

    def leader_of(self, sequence: Sequence) -> Sequence | None:
        """The sequence whose prompt a new one is to share, while that has not ended and the new one has not begun."""
        leader = sequence.request.leader
        if leader is None or sequence.num_preemptions or sequence.num_output:
            return None
        return self._open.get(leader)

    def enter(self, sequence: Sequence) -> None:
        """A waiting sequence, which has been brought in, runs."""
        self.waiting.take(sequence)
        self.num_paused -= sequence.num_preemptions > 0
        sequence.state = State.RUNNING
        self.shares.charge(sequence)
        self.prefilling[sequence.request.request_id] = sequence
        if sequence.group is not None:
            self.beams[sequence.request.request_id] = sequence
        self.watch(sequence, Change.RESUMED if sequence.num_preemptions else Change.ADMITTED)

    def decode(self, sequence: Sequence) -> None:
        """All known tokens of a prefilling sequence are planned."""
        request_id = sequence.request.request_id
        del self.prefilling[request_id]
        self.decoding[request_id] = sequence

    def prefill(self, sequence: Sequence) -> None:
        """The chunk that would have ended its prefill is dropped."""
        request_id = sequence.request.request_id
        del self.decoding[request_id]
        self.prefilling[request_id] = sequence

    def preempt(self, sequence: Sequence, fence: int) -> None:
        """A running sequence waits again, with its arrival and its tokens; its blocks are taken."""
        self._leave_slot(sequence)
        # The cursor stands at the end while a launched step's token is not known; that token is still welcome.
        sequence.awaits_token = sequence.group is None and sequence.num_computed == sequence.num_tokens
        mode = "swap" if self.residency.take_out(sequence, fence) else "recompute"
        sequence.state = State.WAITING
        sequence.quiet_until = 0
        sequence.num_preemptions += 1
        self.num_paused += 1
        kind = sequence.request.level, mode
        self.preemptions[kind] = self.preemptions.get(kind, 0) + 1
        if sequence.group is not None:
            sequence.group.interrupt()
        self.waiting.push(sequence)
        self.watch(sequence, Change.SWAPPED if mode == "swap" else Change.DROPPED)

    def end(self, sequence: Sequence, reason: FinishReason, fence: int) -> bool:
        """A sequence ends, in whatever state it is; False if it had ended before."""
        state = sequence.state
        if state is State.FINISHED:
            return False
        sequence.state = State.FINISHED
        sequence.quiet_until = 0
        sequence.finish_reason = reason
        if state is State.WAITING:
            self.waiting.discard(sequence)
            self.num_paused -= sequence.num_preemptions > 0
        else:
            self._leave_slot(sequence)
        self.residency.release(sequence, fence)
        self.shares.leave(sequence)
        del self._open[sequence.request.request_id]
        if sequence.group is not None:
            sequence.group.end(reason)
        self.watch(sequence, Change.ENDED)
        return True

    def _leave_slot(self, sequence: Sequence) -> None:
        request_id = sequence.request.request_id
        if self.decoding.pop(request_id, None) is None:
            del self.prefilling[request_id]
        self.beams.pop(request_id, None)

    def overdue(self, now: float) -> list[Sequence]:
        """Sequences whose deadline has come and that have not ended."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now:
            sequence = self._open.get(heapq.heappop(self._deadlines)[1])
            if sequence is not None:
                found.append(sequence)
        return found

    def check_integrity(self) -> None:
        """Raise PoolIntegrityError unless states and sets agree."""
        waiting = list(self.waiting)
        if any(s.state is not State.RUNNING for s in self.running) or len(waiting) != len(self.waiting):
            raise PoolIntegrityError("a sequence is in two places, or in none")
        counted = Counter({level: count for level, count in self.waiting.by_level.items() if count})
        if counted != Counter(s.request.level for s in waiting):
            raise PoolIntegrityError("the waiting are miscounted by level")
        if any(s.quiet_until for s in waiting) or any(s.quiet_until > s.limit for s in self.running):
            raise PoolIntegrityError("a sequence takes tokens unseen beyond its length, or while it does not run")
        if set(self.decoding) & set(self.prefilling):
            raise PoolIntegrityError("a sequence both prefills and decodes")
        if any(s.group is None or s.state is not State.RUNNING for s in self.beams.values()):
            raise PoolIntegrityError("what searches over beams is not what runs")
        if self.num_paused != sum(1 for s in waiting if s.num_preemptions):
            raise PoolIntegrityError("the preempted sequences that wait are miscounted")
        self.residency.check_integrity(self.running, waiting)
