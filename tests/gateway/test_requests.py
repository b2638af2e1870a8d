"""What becomes of a request: the tensors that a server is sent, by a service that keeps them. No model runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.fake_triton import BASE_INPUTS, BASE_OUTPUTS, FakeTriton, hello, sent
from tests.gateway.gateway_process import Gateway, running_gateway

NAME = "SmolLM2-135M-Instruct"
LATER_INPUTS = (
    "presence_penalty", "frequency_penalty", "repetition_penalty", "min_tokens", "embedding_bias",
    "return_log_probs", "num_log_probs", "guided_decoding_guide_type", "guided_decoding_guide",
)  # fmt: skip
LATER_OUTPUTS = ("log_prob_ids", "output_log_probs", "top_log_prob_ids", "top_log_probs")
CHAT: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}]}
RENDERED = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
)
TEXT: dict[str, Any] = {"model": NAME, "prompt": "Hi"}


@pytest.fixture(scope="module")
def triton(smollm2_dir: Path) -> Iterator[FakeTriton]:
    fake = FakeTriton(str(smollm2_dir), BASE_INPUTS + LATER_INPUTS, BASE_OUTPUTS + LATER_OUTPUTS)
    server = fake.start()
    yield fake
    server.stop(0)


@pytest.fixture(scope="module")
def gateway(triton: FakeTriton) -> Iterator[Gateway]:
    with running_gateway(triton.url, "--max-body-bytes", "100000", key="") as running:
        yield running


def asked(triton: FakeTriton, gateway: Gateway, path: str, body: dict[str, Any], **headers: str) -> Any:
    """The one request that the server got."""
    triton.asked.clear()
    triton.answer = hello
    reply = gateway.post(path, body, **headers)
    assert reply.status == 200, reply.text
    (request,) = triton.asked
    return request


CHAT_DEFAULTS = {"text_input": RENDERED.encode(), "stream": True, "max_tokens": 1024, "temperature": 1.0}
TEXT_DEFAULTS = {"text_input": b"Hi", "stream": True, "max_tokens": 16, "temperature": 1.0}


def test_what_is_not_asked_for_is_not_sent(triton: FakeTriton, gateway: Gateway) -> None:
    assert sent(asked(triton, gateway, "/v1/chat/completions", CHAT)) == CHAT_DEFAULTS
    assert sent(asked(triton, gateway, "/v1/completions", TEXT)) == TEXT_DEFAULTS


def float32(value: float) -> Any:
    return pytest.approx(value, rel=1e-6)


SHARED = [
    ({"temperature": 0}, {"temperature": 0.0}),
    ({"temperature": 0.7}, {"temperature": float32(0.7)}),
    ({"top_p": 0.9}, {"top_p": float32(0.9)}),
    ({"top_k": 7}, {"top_k": 7}),
    ({"min_p": 0.25}, {"min_p": 0.25}),
    ({"seed": 7}, {"seed": 7}),
    ({"seed": -1}, {"seed": 2**64 - 1}),
    ({"stop": "a"}, {"stop_words": b"a"}),
    ({"stop": ["a", "é"]}, {"stop_words": [b"a", "é".encode()]}),
    ({"presence_penalty": 0.5}, {"presence_penalty": 0.5}),
    ({"frequency_penalty": -0.5}, {"frequency_penalty": -0.5}),
    ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
    ({"min_tokens": 3}, {"min_tokens": 3}),
    ({"ignore_eos": True}, {"ignore_eos": True}),
    ({"priority": 1}, {"priority": 1}),
    ({"user": "ann"}, {"tenant": b"ann"}),
    ({"cache_salt": "s"}, {"cache_salt": b"s"}),
    ({"response_format": {"type": "json_object"}}, {"guided_decoding_guide_type": b"json"}),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}},
        {"guided_decoding_guide_type": b"json_schema", "guided_decoding_guide": b'{"type": "object"}'},
    ),
]
NOTHING: list[dict[str, Any]] = [
    {"n": 1}, {"presence_penalty": 0}, {"frequency_penalty": 0.0}, {"repetition_penalty": 1}, {"logit_bias": {}},
    {"top_k": 0}, {"min_p": 0}, {"stop": []}, {"stop": None}, {"seed": None}, {"user": None}, {"min_tokens": 0},
    {"ignore_eos": False}, {"priority": 0}, {"response_format": {"type": "text"}}, {"metadata": {"a": "b"}},
    {"store": True}, {"service_tier": "auto"}, {"safety_identifier": "x"}, {"prompt_cache_key": "k"},
    {"suffix": None}, {"stream_options": None},
]  # fmt: skip


@pytest.mark.parametrize(("fields", "inputs"), SHARED, ids=str)
def test_each_field_is_the_input_that_means_it(
    triton: FakeTriton, gateway: Gateway, fields: dict[str, Any], inputs: dict[str, Any]
) -> None:
    assert sent(asked(triton, gateway, "/v1/chat/completions", CHAT | fields)) == CHAT_DEFAULTS | inputs
    assert sent(asked(triton, gateway, "/v1/completions", TEXT | fields)) == TEXT_DEFAULTS | inputs


def test_values_that_ask_for_nothing_and_fields_of_habit_are_taken_and_not_sent(
    triton: FakeTriton, gateway: Gateway
) -> None:
    for fields in NOTHING:
        assert sent(asked(triton, gateway, "/v1/chat/completions", CHAT | fields)) == CHAT_DEFAULTS, fields


@pytest.mark.parametrize(
    ("fields", "inputs"),
    [
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"max_completion_tokens": 6}, {"max_tokens": 6}),
        ({"max_completion_tokens": 6, "max_tokens": 6}, {"max_tokens": 6}),
        ({"logprobs": False}, {}),
        ({"modalities": ["text"], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}, {}),
    ],
)
def test_fields_of_chats_alone(
    triton: FakeTriton, gateway: Gateway, fields: dict[str, Any], inputs: dict[str, Any]
) -> None:
    assert sent(asked(triton, gateway, "/v1/chat/completions", CHAT | fields)) == CHAT_DEFAULTS | inputs


def test_log_probabilities_are_asked_for_with_the_outputs_that_hold_them(triton: FakeTriton, gateway: Gateway) -> None:
    plain = asked(triton, gateway, "/v1/completions", TEXT)
    assert [output.name for output in plain.outputs] == list(BASE_OUTPUTS)
    triton.asked.clear()
    triton.answer = lambda _: iter(())  # what they become is another test's
    gateway.post("/v1/chat/completions", CHAT | {"logprobs": True, "top_logprobs": 2})
    gateway.post("/v1/chat/completions", CHAT | {"logprobs": True})
    with_top, without = triton.asked
    assert sent(with_top) == CHAT_DEFAULTS | {"return_log_probs": True, "num_log_probs": 2}
    assert [output.name for output in with_top.outputs] == [*BASE_OUTPUTS, *LATER_OUTPUTS]
    assert sent(without) == CHAT_DEFAULTS | {"return_log_probs": True}
    assert [output.name for output in without.outputs] == [*BASE_OUTPUTS, *LATER_OUTPUTS[:2]]


def test_priority_goes_through_both_doors_from_the_body_or_a_header(triton: FakeTriton, gateway: Gateway) -> None:
    def doors(fields: dict[str, Any], **headers: str) -> tuple[int, int]:
        request = asked(triton, gateway, "/v1/completions", TEXT | fields, **headers)
        return sent(request).get("priority", 0), request.parameters["priority"].uint64_param

    assert doors({}) == (0, 0)
    assert doors({"priority": 1}) == (1, 1)
    assert doors({}, x_priority="3") == (3, 3)
    assert doors({"priority": 1}, x_priority="3") == (1, 1)


def test_a_tenant_named_by_header_goes_before_the_user(triton: FakeTriton, gateway: Gateway) -> None:
    request = asked(triton, gateway, "/v1/completions", TEXT | {"user": "ann"}, x_tenant="acme")
    assert sent(request)["tenant"] == b"acme"


def test_a_bias_is_sent_as_the_weights_of_the_whole_vocabulary(triton: FakeTriton, gateway: Gateway) -> None:
    inputs = sent(asked(triton, gateway, "/v1/completions", TEXT | {"logit_bias": {"5": -100, "49151": 2.5}}))
    assert {token: w for token, w in enumerate(inputs.pop("embedding_bias")) if w} == {5: -100.0, 49151: 2.5}
    assert inputs == TEXT_DEFAULTS
    for key in ("49152", "-1", "x", "1" * 20, "\u0665"):
        reply = gateway.post("/v1/completions", TEXT | {"logit_bias": {key: 1}})
        assert (reply.status, reply.error["param"]) == (400, "logit_bias")
        assert "is no token id, allowed is [0, 49151]" in reply.error["message"]


def prompt(triton: FakeTriton, gateway: Gateway, messages: list[dict[str, Any]]) -> str:
    return sent(asked(triton, gateway, "/v1/chat/completions", CHAT | {"messages": messages}))["text_input"].decode()


def test_messages_are_rendered_as_transformers_renders_them(
    triton: FakeTriton, gateway: Gateway, smollm2_dir: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2_dir)
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi <é> 'x'"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "\n\nBye "},
    ]
    expected = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert prompt(triton, gateway, messages) == expected
    parts = [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]
    developer = [{"role": "developer", "content": parts, "name": None}, *messages[1:]]
    assert prompt(triton, gateway, developer) == expected.replace("Be brief.", "Be\nbrief.")


def test_tools_reach_a_template_that_reads_them_and_are_refused_before_one_that_does_not(
    triton: FakeTriton, gateway: Gateway, tmp_path: Path
) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    reply = gateway.post("/v1/chat/completions", CHAT | {"tools": tools})
    assert (reply.status, reply.error["param"]) == (400, "tools")
    source = "{{ tools | tojson }}|{% for m in messages %}{{ m | tojson }}{% endfor %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": source}))
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "annotations": []}]
    with running_gateway(triton.url, "--tokenizer", str(tmp_path), "--model-name", NAME) as other:
        body = CHAT | {"messages": messages, "tools": tools}
        shown, message = sent(asked(triton, other, "/v1/chat/completions", body))["text_input"].decode().split("|")
        assert json.loads(shown) == tools
        as_object = {"name": "f", "arguments": {"a": 1}}
        assert json.loads(message) == {
            "role": "assistant",
            "content": "",
            "tool_calls": [call | {"function": as_object}],
        }
        hidden = sent(asked(triton, other, "/v1/chat/completions", body | {"tool_choice": "none"}))["text_input"]
        assert hidden.startswith(b"null|")


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
    path, base = ("/v1/chat/completions", CHAT) if kind == "chat" else ("/v1/completions", TEXT)
    reply = gateway.post(path, base | fields)
    assert reply.status == 400
    assert (reply.error["type"], reply.error["param"]) == ("invalid_request_error", param)
    assert problem in reply.error["message"]
    assert reply.error["message"].startswith(f"{param}: ")
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
    reply = gateway.post("/v1/completions", body)
    assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
    assert triton.asked == []


def test_half_a_surrogate_pair_among_the_tools_is_refused_too(triton: FakeTriton, tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ tools[0].x }}")
    with running_gateway(triton.url, "--tokenizer", str(tmp_path), "--model-name", NAME) as other:
        reply = other.post("/v1/chat/completions", CHAT | {"tools": [{"x": "\ud800"}]})
        assert (reply.status, reply.error["param"]) == (400, "messages")
        no_such_thing = other.post("/v1/chat/completions", CHAT | {"tools": ["x"]})
        assert no_such_thing.status == 400


def test_a_number_beyond_float32_is_the_servers_to_refuse(triton: FakeTriton, gateway: Gateway) -> None:
    inputs = sent(asked(triton, gateway, "/v1/completions", TEXT | {"temperature": 1e300}))
    assert inputs["temperature"] == float("inf")


def test_what_the_running_server_has_no_input_for_is_refused_by_name(smollm2_dir: Path) -> None:
    old = FakeTriton(str(smollm2_dir))
    server = old.start()
    with running_gateway(old.url) as gateway:
        for fields in (
            {"presence_penalty": 0.5}, {"frequency_penalty": 0.5}, {"repetition_penalty": 1.1}, {"min_tokens": 1},
            {"logit_bias": {"5": 1}}, {"response_format": {"type": "json_object"}}, {"logprobs": True},
        ):  # fmt: skip
            reply = gateway.post("/v1/chat/completions", CHAT | fields)
            assert (reply.status, reply.error["param"]) == (400, next(iter(fields)))
            assert reply.error["code"] == "unsupported_parameter"
        assert old.asked == []
        assert gateway.post("/v1/chat/completions", CHAT | {"presence_penalty": 0, "n": 1}).status == 200
    server.stop(0)
