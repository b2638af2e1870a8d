"""One stream of pieces for all prompts and choices of a request: cancelled as a whole, failed as a whole."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator

from backend.gateway import triton_wire
from backend.gateway.problems import ApiError, ServerFailure, from_server, timed_out
from backend.gateway.served_model import ENSEMBLE, Catalogue
from backend.gateway.translation import Ask
from backend.gateway.triton_client import TritonClient
from backend.gateway.triton_wire import Piece

_AHEAD = 16
"""Pieces that are kept for a client that reads slower than the server writes; then the server waits."""


class Generation:
    """Asks the server and gives its pieces; choice j of prompt i has index i * n + j."""

    def __init__(self, client: TritonClient, catalogue: Catalogue, seconds: float) -> None:
        """seconds: that one request may take."""
        self._client = client
        self._catalogue = catalogue
        self._seconds = seconds

    async def pieces(self, ask: Ask, request_id: str) -> AsyncGenerator[Piece, None]:
        """Raises ApiError. Leaving the iteration cancels what is under way."""
        if len(ask.prompts) == 1:
            source = self._of_prompt(ask, 0, request_id)
        else:
            source = self._merged(ask, request_id)
        try:
            async for piece in source:
                yield piece
        finally:
            await source.aclose()

    async def _of_prompt(self, ask: Ask, number: int, request_id: str) -> AsyncGenerator[Piece, None]:
        """One prompt's pieces; an open-ended request that does not fit is made shorter, once."""
        try:
            async for piece in self._checked(ask, number, request_id):
                yield piece
        except ServerFailure as failure:
            if not (ask.open_ended and (room := failure.room())):
                raise self._told(failure, ask) from None
        else:
            return
        try:
            shorter = dataclasses.replace(ask, inputs={**ask.inputs, "max_tokens": room})
            async for piece in self._checked(shorter, number, request_id):
                yield piece
        except ServerFailure as failure:
            raise self._told(failure, ask) from None

    async def _checked(self, ask: Ask, number: int, request_id: str) -> AsyncGenerator[Piece, None]:
        inputs = {"text_input": ask.prompts[number].encode(), "stream": True, **ask.inputs}
        request = triton_wire.request(ENSEMBLE, request_id, inputs, ask.outputs, ask.level, self._seconds)
        stream = self._client.stream(request, self._seconds)
        left = ask.n
        try:
            async for piece in stream:
                _check_end(piece.reason)
                left -= piece.reason != ""
                yield dataclasses.replace(piece, index=number * ask.n + piece.index)
        finally:
            await stream.aclose()
        if left:
            raise ServerFailure("INTERNAL", "the stream ended before its answer")

    def _told(self, failure: ServerFailure, ask: Ask) -> ApiError:
        if failure.gone:
            self._catalogue.forget()
        return from_server(failure, ask.names)

    async def _merged(self, ask: Ask, request_id: str) -> AsyncGenerator[Piece, None]:
        """All prompts at once, their pieces as they come."""
        queue: asyncio.Queue[Piece | BaseException | None] = asyncio.Queue(_AHEAD)

        async def pump(number: int) -> None:
            try:
                async for piece in self._of_prompt(ask, number, f"{request_id}-{number}"):
                    await queue.put(piece)
                await queue.put(None)
            except Exception as error:
                await queue.put(error)

        tasks = [asyncio.create_task(pump(number)) for number in range(len(ask.prompts))]
        left = len(tasks)
        try:
            while left:
                item = await queue.get()
                if isinstance(item, BaseException):
                    raise item
                left -= item is None
                if item is not None:
                    yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _check_end(reason: str) -> None:
    """Raise for an end that is no answer."""
    if reason == "timeout":
        raise timed_out()
    if reason == "cancelled":
        raise ApiError(503, "the generation was ended on the server", code="cancelled")
