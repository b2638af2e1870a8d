"""Requests made from the gateway's own description, right ones and wrong ones: none is answered with a server error."""

from __future__ import annotations

import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from tests.gateway.gateway_process import Gateway

pytestmark = pytest.mark.server
EXAMPLES = 2000 if os.environ.get("TESTS_NIGHTLY") else 15
MODEL = "SmolLM2-135M-Instruct"


def small(body: Any) -> Any:
    """The same body, often for the served model, and with few tokens to answer if it is valid otherwise."""
    if not isinstance(body, dict):
        return body
    few: dict[str, Any] = {}
    for name in ("max_tokens", "max_completion_tokens"):
        if isinstance(body.get(name), int) and not isinstance(body[name], bool) and body[name] > 0:
            few[name] = 1 + body[name] % 3
    if "messages" in body and not few.keys() & body.keys():
        few["max_tokens"] = 2
    if isinstance(body.get("n"), int) and body["n"] > 1:
        few["n"] = body["n"] if body["n"] > 64 else 2
    if isinstance(body.get("prompt"), list):
        few["prompt"] = body["prompt"][:3]  # with two choices of each, the server's queue still holds them all
    model = {"model": MODEL} if isinstance(body.get("model"), str) and len(body["model"]) % 4 != 3 else {}
    return body | few | model


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """What was drawn as prompt or messages with no other field: most draws hold some field that is rightly refused."""
    prompt = {"prompt": _with_tokens(body["prompt"])} if "prompt" in body else {"messages": body["messages"]}
    return {"model": MODEL, "max_tokens": 2} | prompt


def _with_tokens(prompt: Any) -> Any:
    """A prompt of no text holds no token and is refused: it becomes one of a word."""
    return [_with_tokens(text) for text in prompt] if isinstance(prompt, list) else "Once" if prompt == "" else prompt


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_no_request_is_answered_with_a_server_error(gateway: Gateway, path: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{gateway.url}/openapi.json")
    operation = schema[path]["POST"]
    statuses: dict[int, int] = {}

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=not os.environ.get("TESTS_NIGHTLY"),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def every(case: Any) -> None:
        drawn = small(case.body)
        send(case, drawn)
        if mode == GenerationMode.POSITIVE:
            send(case, plain(drawn))

    def send(case: Any, body: Any) -> None:
        case.body = body
        response = case.call(timeout=60)
        statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
        case.validate_response(response, checks=[not_a_server_error])
        if response.status_code >= 400:
            assert set(response.json()["error"]) == {"message", "type", "param", "code"}

    every()
    assert statuses.get(400, 0) > 0, f"none was refused: {statuses}"
    assert mode == GenerationMode.NEGATIVE or statuses.get(200, 0) > 0, f"none was answered: {statuses}"
    assert gateway.get("/health").status == 200
