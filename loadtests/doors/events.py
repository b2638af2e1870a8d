"""Server-sent events of one HTTP request, each a JSON object."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Generator, Mapping
from typing import Any
from urllib.parse import urlsplit

from .base import PATIENCE_SECONDS, DoorError


def events(
    url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Generator[dict[str, Any], None, None]:
    """POST `body` and yield the events' objects; closing it closes the connection. Raises DoorError."""
    parts = urlsplit(url)
    # http.client goes past any proxy that the environment names.
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS)
    try:
        with contextlib.closing(connection):
            all_headers = {"content-type": "application/json", **(headers or {})}
            connection.request("POST", parts.path, json.dumps(body), all_headers)
            yield from _read(connection.getresponse())
    except (OSError, http.client.HTTPException) as error:
        raise DoorError(f"{type(error).__name__}: {error}") from error


def _read(response: http.client.HTTPResponse) -> Generator[dict[str, Any], None, None]:
    if response.status != 200:
        raise DoorError(f"status {response.status}: {response.read(500).decode(errors='replace')}")
    begun = False
    for line in response:
        begun = True
        field, _, value = line.decode().strip().partition(": ")
        if field != "data" or value == "[DONE]":
            continue
        event = json.loads(value)
        if "error" in event:
            raise DoorError(str(event["error"]))
        yield event
    # http.client takes a connection that ends between two chunks, or too early, for the end of the lines; and one that
    # ends before the first chunk leaves it no trace of that.
    if (not begun or response.chunk_left is not None) if response.chunked else response.length:
        raise DoorError("the connection was closed before the answer had ended")
