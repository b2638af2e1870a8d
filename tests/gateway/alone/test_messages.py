"""What a chat's messages and tools become: the prompt that the server is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.gateway.alone.asking import CHAT, NAME, asked, chat
from tests.gateway.fake_triton import FakeTriton, sent
from tests.gateway.gateway_process import Gateway, running_gateway


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
    refused = chat(gateway, tools=tools)
    assert (refused.status, refused.error["param"]) == (400, "tools")
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


def test_half_a_surrogate_pair_among_the_tools_is_refused_too(triton: FakeTriton, tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ tools[0].x }}")
    with running_gateway(triton.url, "--tokenizer", str(tmp_path), "--model-name", NAME) as other:
        refused = chat(other, tools=[{"x": "\ud800"}])
        assert (refused.status, refused.error["param"]) == (400, "messages")
        no_such_thing = chat(other, tools=["x"])
        assert no_such_thing.status == 400
