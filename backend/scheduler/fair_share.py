"""FairShare: virtual token counters, one per tenant and level.

The tenant that has been served least is served next, so whoever asks for more gets more only of what others leave
(Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, algorithm 2: the virtual token counter). A tenant
that returns from idleness is lifted to the least counter of those that are active: idleness saves nothing up.
"""

from __future__ import annotations

from backend.request import Sequence

Account = tuple[int, str]
"""(level, tenant)."""


def account_of(sequence: Sequence) -> Account:
    """Whose counter a sequence is charged to."""
    return sequence.request.level, sequence.request.tenant


class FairShare:
    """Counters of the tenants that have anything under way; an account without is forgotten once it is overtaken."""

    def __init__(self, input_weight: float, output_weight: float) -> None:
        self._input_weight = input_weight
        self._output_weight = output_weight
        self._counters: dict[Account, float] = {}
        self._active: dict[Account, int] = {}

    def enter(self, sequence: Sequence) -> None:
        """A request has arrived."""
        account = account_of(sequence)
        if not self._active.get(account):
            self._lift(account)
        self._active[account] = self._active.get(account, 0) + 1

    def _lift(self, account: Account) -> None:
        others = [self._counters[a] for a in self._active if a[0] == account[0]]
        self._counters[account] = max(self._counters.get(account, 0.0), min(others, default=0.0))

    def leave(self, sequence: Sequence) -> None:
        """A request has ended."""
        account = account_of(sequence)
        if sequence.num_charged:
            self.charge(sequence)
        self._active[account] -= 1
        if not self._active[account]:
            del self._active[account]
            self._forget_overtaken(account[0])

    def _forget_overtaken(self, level: int) -> None:
        """An idle account below every active one would be lifted anyway; with nobody active all start afresh."""
        active = [self._counters[a] for a in self._active if a[0] == level]
        least = min(active, default=float("inf"))
        for account in [a for a in self._counters if a[0] == level and a not in self._active]:
            if self._counters[account] <= least:
                del self._counters[account]

    def charge(self, sequence: Sequence) -> None:
        """Count what the sequence got since the last time; what a preemption makes it compute again is not charged."""
        known = len(sequence.tokens)
        if not sequence.num_charged:
            self._add(sequence, self._input_weight * sequence.num_prompt)
            sequence.num_charged = sequence.num_prompt
        self._add(sequence, self._output_weight * (known - sequence.num_charged))
        sequence.num_charged = known

    def charge_beams(self, root: Sequence, count: int) -> None:
        """Count a step of so many beams; what they say is not among the root's tokens."""
        self._add(root, self._output_weight * count)

    def _add(self, sequence: Sequence, cost: float) -> None:
        self._counters[account_of(sequence)] += cost

    def counter(self, account: Account) -> float:
        """What the account has been served, in weighted tokens."""
        return self._counters.get(account, 0.0)

    def of(self, sequence: Sequence) -> float:
        """The counter that a sequence is ordered by."""
        return self._counters.get(account_of(sequence), 0.0)
