"""The ensemble over Triton Server's /generate_stream."""

from __future__ import annotations

from collections.abc import Generator

from ..asks import Ask
from .base import Piece
from .events import events


class HttpDoor:
    """One connection for each request."""

    name = "http"
    counts_pieces = True

    def __init__(self, url: str) -> None:
        """`url`: http://host:port."""
        self._url = f"{url}/v2/models/ensemble/generate_stream"

    def stream(self, ask: Ask) -> Generator[Piece, None, None]:
        """See Door."""
        body = {
            "text_input": ask.prompt,
            "max_tokens": ask.tokens,
            "stream": True,
            "ignore_eos": True,
            "exclude_input_in_output": True,
            "priority": ask.level,
        }
        for event in events(self._url, body):
            yield Piece(event.get("text_output", ""), event.get("num_output_tokens", 0))
