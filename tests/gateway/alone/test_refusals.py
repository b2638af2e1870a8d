"""What is refused by name before the server hears of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.alone.asking import BEARER, chat, text
from tests.gateway.fake_triton import FakeTriton
from tests.gateway.gateway_process import Gateway, running_gateway

IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}
BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("chat", {"messages": []}, "messages", "at least 1 item"),
    ("chat", {"messages": [{"role": "king", "content": "x"}]}, "messages[0].role", "'system'"),
    ("chat", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "valid"),
    ("chat", {"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0].type", "'text'"),
    ("chat", {"messages": [{"role": "user", "content": "x", "colour": 1}]}, "messages[0].colour", "no such field"),
    ("chat", {"messages": None}, "messages", "required"),
    ("chat", {"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
    ("chat", {"max_tokens": "5"}, "max_tokens", "valid integer"),
    ("chat", {"max_tokens": True}, "max_tokens", "valid integer"),
    ("chat", {"max_tokens": 2**31}, "max_tokens", "less than or equal to 2147483647"),
    ("chat", {"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", "differs"),
    ("chat", {"temperature": "hot"}, "temperature", "valid number"),
    ("chat", {"top_p": 0}, "top_p", "greater than 0"),
    ("chat", {"seed": 2**64}, "seed", "less than"),
    ("chat", {"stop": [1]}, "stop[0]", "valid string"),
    ("chat", {"top_logprobs": 2}, "top_logprobs", "with logprobs only"),
    ("chat", {"stream_options": {"include_usage": True}}, "stream_options", "with stream only"),
    ("chat", {"tool_choice": "required"}, "tool_choice", "'auto' or 'none'"),
    ("chat", {"parallel_tool_calls": False}, "parallel_tool_calls", "True"),
    ("chat", {"response_format": {"type": "json_schema"}}, "response_format", "json_schema is required"),
    ("chat", {"functions": []}, "functions", "`tools` is"),
    ("chat", {"reasoning_effort": "low"}, "reasoning_effort", "not supported"),
    ("chat", {"colour": "red"}, "colour", "no such field"),
    ("text", {"suffix": "x"}, "suffix", "not supported"),
    ("text", {"best_of": 2}, "best_of", "differs from n"),
    ("text", {"echo": True, "logprobs": 1}, "echo", "not supported with logprobs"),
    ("text", {"prompt": [1, 2]}, "prompt[0]", "valid string"),
    ("text", {"prompt": ["x"] * 65}, "prompt", "at most 64"),
    ("text", {"cache_salt": 5}, "cache_salt", "valid string"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "param", "problem"), BAD, ids=lambda value: str(value)[:60])
def test_a_bad_field_is_named_and_nothing_is_asked_of_the_server(
    triton: FakeTriton, gateway: Gateway, kind: str, fields: dict[str, Any], param: str, problem: str
) -> None:
    triton.asked.clear()
    refused = (chat if kind == "chat" else text)(gateway, **fields)
    assert refused.status == 400
    assert (refused.error["type"], refused.error["param"]) == ("invalid_request_error", param)
    assert problem in refused.error["message"]
    assert refused.error["message"].startswith(f"{param}: ")
    assert triton.asked == []


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"\xff", b'{"model": NaN', b"[" * 90_000, b"1" * 90_000,
        b'{"model": "SmolLM2-135M-Instruct", "prompt": "x", "temperature": NaN}',
        b'{"model": "SmolLM2-135M-Instruct", "prompt": "x", "temperature": 1e999}',
        b'{"model": "SmolLM2-135M-Instruct", "prompt": "\\ud800"}',
        b'{"model": "SmolLM2-135M-Instruct", "prompt": "x", "\\ud800": 1}',
        b'{"model": "SmolLM2-135M-Instruct", "prompt": "x", "stop": "\\ud800"}',
        b'{"model": "SmolLM2-135M-Instruct", "prompt": "x", "seed": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: repr(body[:40] + body[-20:]),
)  # fmt: skip
def test_what_is_no_request_at_all_is_refused_in_the_same_form(
    triton: FakeTriton, gateway: Gateway, body: bytes
) -> None:
    triton.asked.clear()
    refused = gateway.post("/v1/completions", body, **BEARER)
    assert (refused.status, refused.error["type"]) == (400, "invalid_request_error")
    assert triton.asked == []


def test_what_the_running_server_has_no_input_for_is_refused_by_name(smollm2_dir: Path) -> None:
    old = FakeTriton(str(smollm2_dir))
    server = old.start()
    with running_gateway(old.url) as gateway:
        for fields in (
            {"presence_penalty": 0.5}, {"frequency_penalty": 0.5}, {"repetition_penalty": 1.1}, {"min_tokens": 1},
            {"logit_bias": {"5": 1}}, {"response_format": {"type": "json_object"}}, {"logprobs": True},
        ):  # fmt: skip
            refused = chat(gateway, **fields)
            assert (refused.status, refused.error["param"]) == (400, next(iter(fields)))
            assert refused.error["code"] == "unsupported_parameter"
        assert old.asked == []
        assert chat(gateway, presence_penalty=0, n=1).status == 200
    server.stop(0)
