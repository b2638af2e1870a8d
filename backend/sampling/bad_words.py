"""Bad words: token sequences that never come to stand in a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backend.sampling_params import Words


class BadWords:
    """Says which tokens would complete a word. Words are found by the last token of their beginning, in one look-up.

    single: words of one token. longest: tokens before the next one that matter.
    """

    def __init__(self, words: Words) -> None:
        self.single = [word[0] for word in words if len(word) == 1]
        self.longest = max((len(word) - 1 for word in words), default=0)
        self._by_last: dict[int, list[tuple[tuple[int, ...], int]]] = {}
        for word in words:
            if len(word) > 1:
                self._by_last.setdefault(word[-2], []).append((word[:-1], word[-1]))

    def completing(self, last: Sequence[int]) -> Iterator[int]:
        """Tokens that would complete a word of several tokens. last: the last ``longest`` tokens, or all there are."""
        candidates = self._by_last.get(last[-1]) if last else None
        if candidates is None:
            return
        tail = tuple(last)
        for beginning, completing in candidates:
            if tail[len(tail) - len(beginning) :] == beginning and len(beginning) <= len(tail):
                yield completing
