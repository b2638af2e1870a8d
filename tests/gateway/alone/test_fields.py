"""What a request's fields become: the inputs that the server is sent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.alone.asking import CHAT, CHAT_DEFAULTS, LOG_PROBS, TEXT, TEXT_DEFAULTS, asked, chat, text
from tests.gateway.fake_triton import BASE_OUTPUTS, FakeTriton, sent
from tests.gateway.gateway_process import Gateway


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
    chat(gateway, logprobs=True, top_logprobs=2)
    chat(gateway, logprobs=True)
    with_top, without = triton.asked
    assert sent(with_top) == CHAT_DEFAULTS | {"return_log_probs": True, "num_log_probs": 2}
    assert [output.name for output in with_top.outputs] == [*BASE_OUTPUTS, *LOG_PROBS]
    assert sent(without) == CHAT_DEFAULTS | {"return_log_probs": True}
    assert [output.name for output in without.outputs] == [*BASE_OUTPUTS, *LOG_PROBS[:2]]


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
        refused = text(gateway, logit_bias={key: 1})
        assert (refused.status, refused.error["param"]) == (400, "logit_bias")
        assert "is no token id, allowed is [0, 49151]" in refused.error["message"]


def test_a_number_beyond_float32_is_the_servers_to_refuse(triton: FakeTriton, gateway: Gateway) -> None:
    inputs = sent(asked(triton, gateway, "/v1/completions", TEXT | {"temperature": 1e300}))
    assert inputs["temperature"] == float("inf")
