"""Why a sequence ends, and what may end it by its text."""

from __future__ import annotations

import enum
from typing import Protocol


class FinishReason(enum.StrEnum):
    """Why a sequence ended; the value is what a client reads."""

    EOS = "eos"
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    ERROR = "error"


class StopWatch(Protocol):
    """Looks at each new token and says when the text holds a stop string. Deterministic in the tokens alone."""

    def push(self, token_id: int) -> bool:
        """Take the next generated token; True when the sequence is to end here."""


class BeamWatch(Protocol):
    """Says when a beam's text holds a stop string. A beam that goes on in several ways takes a fork for each."""

    def fork(self) -> BeamWatch:
        """One that stands where this one does."""

    def push(self, token_id: int) -> bool:
        """Take the next token of the output; True when the beam is to end here."""
