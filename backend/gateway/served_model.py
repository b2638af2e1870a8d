"""ServedModel: what the running server takes and gives, and the model's own chat template and vocabulary.

The server is asked when it is first needed and again after it was gone, so a gateway may be started before it and
serves whatever version of the ensemble comes up.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from backend.gateway.problems import ApiError, ServerFailure, not_ready, refused
from backend.gateway.settings import Settings
from backend.gateway.triton_client import Tensors, TritonClient
from backend.gateway.vocabulary import Vocabulary
from backend.text import chat_template

ENSEMBLE = "ensemble"
_TOKENIZING = "preprocessing"


@dataclass(frozen=True)
class ServedModel:
    """name: what clients call it. template: None where it has none, or its files are on another machine."""

    name: str
    created: int
    tensors: Tensors
    template: chat_template.ChatTemplate | None
    directory: Path

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Read when first asked for: that takes a moment. Raises ApiError where the files are on another machine."""
        try:
            return Vocabulary(self.directory)
        except (ValueError, OSError):
            message = "this gateway does not have the model's tokenizer (--tokenizer)"
            raise refused("logprobs", message, "unsupported_parameter") from None

    @cached_property
    def vocab_size(self) -> int:
        """Of the model's logits. Raises ApiError where the files are on another machine."""
        try:
            config = json.loads((self.directory / "config.json").read_text(encoding="utf-8"))
            return int(config.get("vocab_size") or config["text_config"]["vocab_size"])
        except (ValueError, OSError, KeyError):
            message = "this gateway does not have the model's config.json (--tokenizer)"
            raise refused("logit_bias", message, "unsupported_parameter") from None

    @cached_property
    def reads_tools(self) -> bool:
        """Whether the chat template looks at tools; a broken one does not."""
        try:
            return self.template is not None and self.template.reads_tools
        except ValueError:
            return False

    def listed(self) -> dict[str, object]:
        """The entry of /v1/models."""
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "inflight-batcher"}


class Catalogue:
    """Keeps what is known of the server until it is told to forget it."""

    def __init__(self, client: TritonClient, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._settings = settings
        self._created = int(clock())
        self._known: ServedModel | None = None
        self._asking = asyncio.Lock()

    async def get(self) -> ServedModel:
        """Raises ApiError 503 when the server is not ready."""
        async with self._asking:
            if self._known is None:
                self._known = await self._ask()
            return self._known

    async def named(self, name: str) -> ServedModel:
        """The model of this name. Raises ApiError 404 for another, 503 when the server is not ready."""
        model = await self.get()
        if name != model.name:
            message = f"model: no such model is served, {model.name!r} is"
            raise ApiError(404, message, param="model", code="model_not_found")
        return model

    async def ready(self) -> bool:
        """Whether requests would be answered now."""
        if not await self._client.ready(ENSEMBLE):
            self.forget()
            return False
        try:
            await self.get()
        except ApiError:
            return False
        return True

    def forget(self) -> None:
        """The server was gone: ask it anew, it may be another one."""
        self._known = None

    async def _ask(self) -> ServedModel:
        if not await self._client.ready(ENSEMBLE):
            raise not_ready()
        try:
            tensors = await self._client.tensors(ENSEMBLE)
            place = self._settings.tokenizer_dir or Path(await self._client.parameter(_TOKENIZING, "tokenizer_dir"))
        except ServerFailure:
            raise not_ready() from None
        name = self._settings.model_name or place.name or ENSEMBLE
        template = await asyncio.to_thread(_template, place)
        return ServedModel(name, self._created, tensors, template, place)


def _template(place: Path) -> chat_template.ChatTemplate | None:
    try:
        return chat_template.find(place)
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return None
