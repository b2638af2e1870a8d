"""Gain: the blocks that victims make available, those that they have reserved among them."""

from __future__ import annotations

from collections.abc import Callable

from backend.kv.block_table import Release
from backend.request import Sequence


class Gain:
    """What a growing or shrinking set of victims makes available."""

    def __init__(self, release: Release, to_the_end: Callable[[Sequence], int]) -> None:
        """to_the_end: blocks that a sequence can still come to need beyond those it holds."""
        self._release, self._to_the_end = release, to_the_end

    @property
    def blocks(self) -> int:
        """Blocks that become available."""
        return self._release.blocks

    def add(self, victim: Sequence) -> None:
        """One more."""
        self._release.add(victim, self._to_the_end(victim) if victim.reserved else 0)

    def remove(self, victim: Sequence) -> None:
        """One less."""
        self._release.remove(victim, self._to_the_end(victim) if victim.reserved else 0)
