"""The engine's own figures, from the server's page of metrics."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_LINE = re.compile(r"^(inflight_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_OUTCOME = re.compile(r'outcome="(\w+)"')


@dataclass(frozen=True, kw_only=True)
class EngineFigures:
    """outcomes: of the requests that have ended, so far. blocks: used, cached, free and all of the pool's."""

    outcomes: Counter[str]
    running: int
    waiting: int
    swapped: int
    used: int
    cached: int
    free: int
    blocks: int

    @classmethod
    def parsed(cls, page: str) -> EngineFigures:
        """From the page's text. Raises KeyError if the engine publishes nothing."""
        plain: dict[str, int] = {}
        outcomes: Counter[str] = Counter()
        for name, labels, value in _LINE.findall(page):
            if name == "inflight_requests_total":
                outcomes[_OUTCOME.findall(labels)[0]] += int(float(value))
            else:
                plain[name] = int(float(value))
        return cls(
            outcomes=outcomes,
            running=plain["inflight_running_sequences"],
            waiting=plain["inflight_waiting_sequences"],
            swapped=plain["inflight_swapped_sequences"],
            used=plain["inflight_pool_blocks_used"],
            cached=plain["inflight_pool_blocks_cached"],
            free=plain["inflight_pool_blocks_free"],
            blocks=plain["inflight_pool_blocks"],
        )

    @property
    def idle(self) -> bool:
        """Nothing runs, waits or holds a block, and every block is accounted for."""
        busy = self.running, self.waiting, self.swapped, self.used
        return not any(busy) and self.cached + self.free == self.blocks
