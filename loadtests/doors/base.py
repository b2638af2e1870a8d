"""What all doors share."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, Protocol

from ..asks import Ask

PATIENCE_SECONDS = 120.0
"""Silence of a server after which a request has failed."""


class Piece(NamedTuple):
    """One response: its text, and the new tokens that it says it holds."""

    text: str
    tokens: int


class DoorError(Exception):
    """The server refused or broke off; one line."""


class Door(Protocol):
    """One user's way into the server.

    counts_pieces: whether each piece says how many tokens it holds; if not, the last piece has them all.
    """

    name: str
    counts_pieces: bool

    def stream(self, ask: Ask) -> Generator[Piece, None, None]:
        """Send the request and yield what comes. Closing it cancels the request. Raises DoorError."""
        ...
