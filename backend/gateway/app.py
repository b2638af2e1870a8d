"""The routes of OpenAI's interface, over one connection to a running Triton Server."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, Response

from backend.gateway import translation
from backend.gateway.answers import Answer, ChatAnswer, CompletionAnswer
from backend.gateway.event_stream import DONE, ClientGone, EventStream, event, unless_gone
from backend.gateway.fields import ChatRequest, CommonFields, CompletionRequest
from backend.gateway.generation import Generation
from backend.gateway.guards import Body, Key, LastWord, Room, error_response
from backend.gateway.problems import ApiError, not_ready
from backend.gateway.served_model import Catalogue, ServedModel
from backend.gateway.settings import Settings
from backend.gateway.translation import Ask, Headers
from backend.gateway.triton_client import TritonClient
from backend.gateway.triton_wire import Piece
from backend.gateway.validation import explain
from backend.gateway.vocabulary import Vocabulary

_NOBODY = 499  # the client has gone, so nobody reads it
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": meaning, "content": {"application/json": {"schema": {"type": "object"}}}}
    for status, meaning in {
        400: "a field is wrong, or not served",
        401: "the key is missing or wrong",
        404: "no such model",
        413: "the body is too large",
        429: "the queue is full",
        503: "the server is not ready",
        504: "the answer took too long",
    }.items()
}


@dataclass(slots=True)
class _Connection:
    """Made when the event loop runs."""

    catalogue: Catalogue
    generation: Generation


def create_app(settings: Settings) -> FastAPI:
    """An ASGI application; it connects to the server when it is started."""
    middleware = [
        Middleware(LastWord),
        Middleware(Key, settings.api_key),
        Middleware(Room, settings.max_requests),
        Middleware(Body, settings.max_body_bytes),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        client = TritonClient(settings.url)
        catalogue = Catalogue(client, settings)
        app.state.connection = _Connection(catalogue, Generation(client, catalogue, settings.request_seconds))
        yield
        await client.close()

    app = FastAPI(
        title="inflight-batcher", version="1", lifespan=lifespan, middleware=middleware, docs_url=None, redoc_url=None
    )
    _add_handlers(app)
    _add_models(app)
    _add_answers(app, settings.default_max_tokens)
    return app


def _add_handlers(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def told(_: Request, error: ApiError) -> Response:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return error_response(explain(error.errors()))

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        return JSONResponse(ApiError(error.status_code, str(error.detail)).body(), error.status_code, error.headers)

    @app.exception_handler(ClientGone)
    async def gone(_: Request, __: ClientGone) -> Response:
        return Response(status_code=_NOBODY)


def _add_models(app: FastAPI) -> None:
    @app.get("/health", responses={503: _ERRORS[503]})
    async def health(request: Request) -> dict[str, str]:
        """Whether requests would be answered now."""
        if not await _connection(request).catalogue.ready():
            raise not_ready()
        return {"status": "ready"}

    @app.get("/v1/models", responses={s: _ERRORS[s] for s in (401, 503)})
    async def models(request: Request) -> dict[str, Any]:
        """The one model that is served."""
        return {"object": "list", "data": [(await _connection(request).catalogue.get()).listed()]}

    @app.get("/v1/models/{model}", responses={s: _ERRORS[s] for s in (401, 404, 503)})
    async def model(request: Request, model: str) -> dict[str, Any]:
        """The model of this name."""
        return (await _connection(request).catalogue.named(model)).listed()


def _add_answers(app: FastAPI, default_max_tokens: int) -> None:
    @app.post("/v1/chat/completions", responses=_ERRORS)
    async def chat(request: Request, body: ChatRequest) -> Response:
        """Answer a conversation."""
        model = await _connection(request).catalogue.named(body.model)
        ask = await asyncio.to_thread(translation.chat, body, _headers(request), model, default_max_tokens)
        answer = ChatAnswer(ask, f"chatcmpl-{secrets.token_hex(12)}", model.name, _vocabulary(ask, model))
        return await _respond(request, body, ask, answer)

    @app.post("/v1/completions", responses=_ERRORS)
    async def completions(request: Request, body: CompletionRequest) -> Response:
        """Continue one text or several."""
        model = await _connection(request).catalogue.named(body.model)
        ask = await asyncio.to_thread(translation.completion, body, _headers(request), model)
        answer = CompletionAnswer(ask, f"cmpl-{secrets.token_hex(12)}", model.name, _vocabulary(ask, model))
        return await _respond(request, body, ask, answer)


def _connection(request: Request) -> _Connection:
    connection: _Connection = request.app.state.connection
    return connection


def _headers(request: Request) -> Headers:
    return Headers(priority=request.headers.get("x-priority", ""), tenant=request.headers.get("x-tenant", ""))


def _vocabulary(ask: Ask, model: ServedModel) -> Vocabulary | None:
    return model.vocabulary if ask.num_top is not None else None


async def _respond(request: Request, body: CommonFields, ask: Ask, answer: Answer) -> Response:
    """An error before the first token has its status; later ones are an event of the stream."""
    pieces = _connection(request).generation.pieces(ask, answer.request_id)
    headers = {"x-request-id": answer.request_id}
    if not body.stream:
        whole = await unless_gone(_all(pieces), request.receive)
        return JSONResponse(answer.whole(whole), headers=headers)
    first = await unless_gone(_first(pieces), request.receive)
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    return EventStream(_events(answer, first, pieces, with_usage), headers)


async def _all(pieces: AsyncGenerator[Piece, None]) -> list[Piece]:
    try:
        return [piece async for piece in pieces]
    finally:
        await pieces.aclose()


async def _first(pieces: AsyncGenerator[Piece, None]) -> Piece:
    try:
        return await anext(pieces)
    except BaseException:
        await pieces.aclose()
        raise


async def _events(
    answer: Answer, first: Piece, rest: AsyncGenerator[Piece, None], with_usage: bool
) -> AsyncGenerator[str, None]:
    """The whole stream. With usage every chunk has the field, null in all but the last, as OpenAI's."""
    blank: dict[str, Any] = {"usage": None} if with_usage else {}
    try:
        for chunk in answer.opening():
            yield event(chunk | blank)
        if (chunk_of_first := answer.chunk(first)) is not None:
            yield event(chunk_of_first | blank)
        async for piece in rest:
            if (next_chunk := answer.chunk(piece)) is not None:
                yield event(next_chunk | blank)
        if with_usage:
            yield event(answer.closing())
    except ApiError as error:
        yield event(error.body())
    finally:
        await rest.aclose()
    yield DONE
