"""OpenAI's completions by the gateway; a key, where it asks for one, is in GATEWAY_API_KEY."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Generator

from ..asks import Ask
from .base import DoorError, Piece
from .events import events

KEY_VARIABLE = "GATEWAY_API_KEY"


class OpenaiDoor:
    """One connection for each request. Events do not say how many tokens they hold; the last one says how many came."""

    name = "openai"
    counts_pieces = False

    def __init__(self, url: str) -> None:
        """`url`: http://host:port, without /v1."""
        self._url = url
        self._model = ""
        key = os.environ.get(KEY_VARIABLE)
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    def stream(self, ask: Ask) -> Generator[Piece, None, None]:
        """See Door."""
        body = {
            "model": self._model_name(),
            "prompt": ask.prompt,
            "max_tokens": ask.tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
            "priority": ask.level,
        }
        for event in events(f"{self._url}/v1/completions", body, self._headers):
            usage = event.get("usage") or {}
            text = "".join(choice["text"] for choice in event["choices"])
            yield Piece(text, usage.get("completion_tokens", 0))

    def _model_name(self) -> str:
        if not self._model:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            request = urllib.request.Request(f"{self._url}/v1/models", headers=self._headers)
            try:
                with opener.open(request, timeout=10) as reply:
                    self._model = json.load(reply)["data"][0]["id"]
            except OSError as error:
                raise DoorError(f"{request.full_url}: {error}") from error
        return self._model
