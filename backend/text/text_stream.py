"""TextStream: which bytes of a sequence's tokens may be shown by now, exactly and never twice.

It runs beside the engine, where the tokens are known in order, and ends a sequence whose text holds a stop string. It
sends no text: each response carries a TextSpan, from which the stateless detokenizer makes the text.

    tokens   |  A  |   B   | C |  D  |
    bytes    xxxxxxxxxxx|yyyyyyy|hhh|       x shown before, y shown now, h held back: half a character, or the
                        start   end         beginning of a stop string
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import NamedTuple

from backend.text.stop_strings import StopStrings
from backend.text.token_bytes import TokenBytes


class TextSpan(NamedTuple):
    """Show bytes [start, end) of what ``ids`` stand for. The cut never parts a character that is whole."""

    ids: list[int]
    start: int
    end: int

    def text(self, token_bytes: TokenBytes) -> str:
        """The text to show."""
        return token_bytes.text(token_bytes.join(self.ids)[self.start : self.end])


class TextStream:
    """The text side of one sequence. ``push`` is the engine's stop watch; ``take`` cuts the next span."""

    def __init__(
        self,
        token_bytes: TokenBytes,
        stop_strings: Iterable[str] = (),
        echo: Iterable[int] = (),
        min_tokens: int = 0,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        """min_tokens: a stop string counts only where it begins after so many generated tokens.

        ends: tokens that end the sequence, and are no text even where their tokenizer has a word for them.
        """
        self._token_bytes = token_bytes
        self._stops = StopStrings(stop_strings)
        self._unwatched = min_tokens
        self._ends = ends
        self._ids = list(echo)
        self._bytes = bytearray(token_bytes.join(self._ids))
        # Only an echo begins at the beginning of a text; what is generated continues one, and keeps its first space.
        self._start = int(token_bytes.strips_first_space and self._bytes.startswith(b" "))
        self._cut: int | None = None

    def push(self, token_id: int) -> bool:
        """Take the next generated token; True when the text now holds a stop string."""
        if token_id in self._ends:
            return False
        data = self._token_bytes.join((token_id,))
        self._ids.append(token_id)
        self._bytes += data
        if self._unwatched:
            self._unwatched -= 1
            return False
        matched = self._stops.push(data)
        if matched is not None:
            self._cut = len(self._bytes) - matched
        return matched is not None

    def take(self, final: bool) -> TextSpan:
        """The next span to show; with ``final`` all that is left. Tokens wholly shown are forgotten."""
        end = self._end(final)
        span = TextSpan(self._ids.copy(), self._start, end)
        self._start = end
        self._forget()
        return span

    def ready(self) -> bool:
        """Whether ``take(final=False)`` would show anything."""
        return self._end(final=False) > self._start

    def _end(self, final: bool) -> int:
        if self._cut is not None:
            return self._cut
        if final:
            return len(self._bytes)
        safe = max(self._start, len(self._bytes) - self._stops.held)
        _, whole = codecs.utf_8_decode(bytes(self._bytes[self._start : safe]), "replace", False)
        return self._start + whole

    def _forget(self) -> None:
        """Drop tokens from the front whose bytes have all been shown, so that spans stay short."""
        done, shown = 0, 0
        for token in self._ids:
            size = len(self._token_bytes.join((token,)))
            if shown + size > self._start:
                break
            done, shown = done + 1, shown + size
        del self._ids[:done], self._bytes[:shown]
        self._start -= shown
        if self._cut is not None:
            self._cut -= shown
