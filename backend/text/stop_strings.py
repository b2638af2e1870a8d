"""Finds stop strings in a stream of bytes and says how much of its tail could still become one.

One Knuth-Morris-Pratt automaton per string (Knuth, Morris, Pratt: Fast Pattern Matching in Strings, 1977, section 2):
its state is the length of the longest tail of the stream that begins the string, which is just what must be held back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable


class StopStrings:
    """Stop strings of one sequence, as UTF-8 bytes. Empty strings are none."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._patterns = [s.encode() for s in dict.fromkeys(strings) if s]
        self._failures = [_failure(pattern) for pattern in self._patterns]
        self._states = [0] * len(self._patterns)

    def fork(self) -> StopStrings:
        """Those of another sequence, which begins like this one."""
        other = copy.copy(self)
        other._states = self._states.copy()
        return other

    def push(self, data: bytes) -> int | None:
        """Take the next bytes. None, or how many bytes lie from the start of the first match to the end of ``data``.

        The match that is complete first wins, whatever the cut into tokens; of several complete at the same byte the
        longest, so that no piece of a stop string is ever shown.
        """
        if not self._patterns:
            return None
        for index, byte in enumerate(data):
            matched = max(self._advance(n, byte) for n in range(len(self._patterns)))
            if matched:
                return matched + len(data) - index - 1
        return None

    def _advance(self, n: int, byte: int) -> int:
        """Move automaton n on by one byte; its length when that completes it, else 0."""
        pattern, failure, state = self._patterns[n], self._failures[n], self._states[n]
        while state and (state == len(pattern) or pattern[state] != byte):
            state = failure[state]
        state += pattern[state] == byte
        self._states[n] = state
        return state if state == len(pattern) else 0

    @property
    def held(self) -> int:
        """Bytes at the end of the stream that could still become a stop string."""
        return max(self._states, default=0)


def _failure(pattern: bytes) -> list[int]:
    """failure[k]: length of the longest proper tail of pattern[:k] that begins the pattern."""
    failure = [0, 0]
    for byte in pattern[1:]:
        state = failure[-1]
        while state and pattern[state] != byte:
            state = failure[state]
        failure.append(state + (pattern[state] == byte))
    return failure
