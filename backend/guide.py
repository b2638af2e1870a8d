"""Guide: what an output has to conform to. GuideState: how far one output has come in it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol


class NoToken(enum.IntEnum):
    """What a step brings a guided sequence in place of a token; below 0, as no token is.

    COMPLETE: nothing may follow, and no end-of-sequence token may be drawn to say so. NONE_LEFT: the guide needs more,
    but what it allows here is forbidden otherwise. TOO_COMPLEX: following the guide exceeds its limits.
    """

    COMPLETE = -1
    NONE_LEFT = -2
    TOO_COMPLEX = -3


class GuideState(Protocol):
    """One output under way."""

    def allowed(self) -> bytes | None:
        """A bit per token, the lowest of byte 0 first: whether it may come next; None if the limits are exceeded.

        No end of sequence is among them; ``may_end`` says whether one may come.
        """

    def may_end(self) -> bool:
        """Whether the output so far is whole. After ``allowed``."""

    def push(self, token: int) -> None:
        """The next token."""


class Guide(Protocol):
    """Compiled, and shared by all outputs that are to conform to it."""

    def start(self, output: Sequence[int]) -> GuideState:
        """A state of its own, after these tokens."""


def problem_of(outcome: NoToken, num_output: int) -> str:
    """The error for the client, after so many output tokens; "" if it is none."""
    if outcome is NoToken.NONE_LEFT:
        return (
            f"guided_decoding_guide: after {num_output} tokens none is left that the guide allows and bad words, "
            "biases and min_tokens do not forbid"
        )
    if outcome is NoToken.TOO_COMPLEX:
        return f"guided_decoding_guide: too complex to be followed further after {num_output} tokens"
    return ""
