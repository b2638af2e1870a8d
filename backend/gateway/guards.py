"""What stands around the routes: the key, the bounds, and the last word when something breaks. Plain ASGI, because
middleware that wraps responses would hide from them that a client has gone.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import traceback
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.gateway.problems import ApiError

_log = logging.getLogger(__name__)
_BODY_SECONDS = 60.0
_OPEN_TO_ALL = ("/health",)


def error_response(error: ApiError) -> JSONResponse:
    """The error as a response."""
    return JSONResponse(error.body(), error.status, error.headers())


class LastWord:
    """Turns what nobody expected into a 500 that says nothing of the inside. The log has the place, not the words:
    an exception's message may hold a client's text.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI side."""
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            told = error if isinstance(error, ApiError) else ApiError(500, "the gateway failed", code="internal_error")
            if told is not error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                _log.error("%s at %s:%s", type(error).__name__, place.filename, place.lineno)
            if not started:
                await error_response(told)(scope, receive, send)


class Key:
    """Asks for ``authorization: Bearer KEY``, if there is a key."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI side."""
        if scope["type"] == "http" and self._key and scope["path"] not in _OPEN_TO_ALL:
            given = dict(scope["headers"]).get(b"authorization", b"")
            kind, _, token = given.partition(b" ")
            # compare_digest takes as long for a nearly right key as for any other.
            if not (hmac.compare_digest(token.strip(), self._key) and kind.lower() == b"bearer"):
                raise ApiError(401, "a valid key is needed: authorization: Bearer KEY", code="invalid_api_key")
        await self._app(scope, receive, send)


class Room:
    """Lets so many requests with a body be under way, streams until their end; the rest is told to come later."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._left = most
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI side."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        if self._left <= 0:
            raise ApiError(429, f"{self._most} requests are under way, no more are taken", code="too_many_requests")
        self._left -= 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._left += 1


class Body:
    """Reads the whole body, up to a limit, before anything looks at it."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI side."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await self._read(scope, receive)
        except TimeoutError:
            raise ApiError(408, f"the body did not come within {_BODY_SECONDS:.0f} s") from None
        if body is None:
            return
        pending: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self._app(scope, replay, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """None if the client went."""
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        self._check(int(declared) if declared.isdigit() and len(declared) < 20 else 0)
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self._check(size)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _check(self, size: int) -> None:
        if size > self._most:
            raise ApiError(413, f"the body is larger than {self._most} bytes", code="body_too_large")
