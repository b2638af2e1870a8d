"""LogitBias: what a request adds to the logits of chosen tokens. Eight bytes an entry: it may be a whole vocabulary."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogitBias:
    """ids: int32 token ids, distinct. weights: float32, one for each. Both as the machine's bytes, immutable."""

    ids: bytes = b""
    weights: bytes = b""

    @classmethod
    def of(cls, entries: Iterable[tuple[int, float]]) -> LogitBias:
        """From (token id, weight) pairs; weights of one id add up. Raises OverflowError if an id exceeds 32 bits."""
        total: dict[int, float] = {}
        for token, weight in entries:
            total[token] = total.get(token, 0.0) + weight
        return cls(array("i", total.keys()).tobytes(), array("f", total.values()).tobytes())

    def __bool__(self) -> bool:
        return bool(self.ids)

    def __len__(self) -> int:
        return len(self.ids) // 4

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return zip(array("i", self.ids), array("f", self.weights), strict=True)

    def extremes(self) -> tuple[tuple[int, float], tuple[int, float]]:
        """The smallest (id, weight) and the largest, each of its kind; infinite weights if any weight is NaN."""
        if not self.ids:
            return (0, 0.0), (0, 0.0)
        ids, weights = array("i", self.ids), array("f", self.weights)
        if math.isnan(sum(weights)):
            return (min(ids), -math.inf), (max(ids), math.inf)
        return (min(ids), min(weights)), (max(ids), max(weights))


NO_BIAS = LogitBias()
