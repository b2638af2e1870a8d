"""The ensemble over gRPC streaming, by tritonclient's stubs."""

from __future__ import annotations

from collections.abc import Generator

from scripts.generate_stream import Client, ServerError

from ..asks import Ask
from .base import DoorError, Piece


class GrpcDoor:
    """A connection of its own, as separate clients have. gRPC must have been made to work with gevent before."""

    name = "grpc"
    counts_pieces = True

    def __init__(self, url: str) -> None:
        """`url`: host:port."""
        self._client = Client(url)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def stream(self, ask: Ask) -> Generator[Piece, None, None]:
        """See Door. The level goes through both doors: the engine's tensor, and the server's own queue."""
        inputs = {
            "text_input": ask.prompt.encode(),
            "max_tokens": ask.tokens,
            "stream": True,
            "ignore_eos": True,
            "exclude_input_in_output": True,
            "priority": ask.level,
        }
        try:
            for text, tokens in self._client.generate(inputs, queue_priority=ask.level):
                yield Piece(text, tokens)
        except ServerError as error:
            raise DoorError(str(error)) from error
