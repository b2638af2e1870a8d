"""How far apart the service of tenants of one level drifts while both have requests waiting for their first token.

Sheng et al., Fairness in Serving Large Language Models (OSDI 2024), theorem 4.4: over any interval in which two clients
are backlogged, a virtual token counter keeps their weighted service within 2 * max(input_weight * longest input,
output_weight * tokens that a batch can hold). Counted here from plans and tokens, not from the scheduler's counters.
"""

from __future__ import annotations

from itertools import combinations


class FairnessWatch:
    """accounts: (level, tenant), known beforehand; they are referred to by their index."""

    def __init__(self, accounts: list[tuple[int, str]], input_weight: float, output_weight: float) -> None:
        self.served = [0.0] * len(accounts)
        self.worst: dict[int, float] = {level: 0.0 for level, _ in accounts}
        self._accounts = accounts
        self._input_weight, self.output_weight = input_weight, output_weight
        self._waiting = [0] * len(accounts)
        self._open: dict[tuple[int, int], tuple[float, float]] = {}

    def arrived(self, account: int) -> None:
        """A request of the account waits."""
        self._waiting[account] += 1
        if self._waiting[account] > 1:
            return
        for pair in combinations(range(len(self._accounts)), 2):
            if account in pair and self._waiting[pair[0]] and self._waiting[pair[1]] and self._same_level(*pair):
                apart = self._apart(pair)
                self._open[pair] = (apart, apart)

    def _same_level(self, one: int, other: int) -> bool:
        return self._accounts[one][0] == self._accounts[other][0]

    def _apart(self, pair: tuple[int, int]) -> float:
        return self.served[pair[0]] - self.served[pair[1]]

    def started(self, account: int, prompt: int) -> None:
        """A request has its first chunk: its input is charged whole, as the scheduler does."""
        self.served[account] += self._input_weight * prompt
        self.check()
        self._waiting[account] -= 1
        if not self._waiting[account]:
            for pair in [pair for pair in self._open if account in pair]:
                del self._open[pair]

    def check(self) -> None:
        """Widen the range of each pair's difference by what it is now; once per step, and at each start."""
        for pair, (low, high) in self._open.items():
            apart = self._apart(pair)
            if low <= apart <= high:
                continue
            low, high = min(low, apart), max(high, apart)
            self._open[pair] = (low, high)
            level = self._accounts[pair[0]][0]
            self.worst[level] = max(self.worst[level], high - low)

    def bound(self, longest_input: int, pool_tokens: int) -> float:
        """The theorem's bound, in weighted tokens."""
        return 2 * max(self._input_weight * longest_input, self.output_weight * pool_tokens)
