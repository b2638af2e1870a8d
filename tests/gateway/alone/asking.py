"""What tests of the gateway alone ask it, and what the server is then sent where nothing more is asked for."""

from __future__ import annotations

from typing import Any

from tests.gateway.fake_triton import BASE_INPUTS, BASE_OUTPUTS, FakeTriton, hello
from tests.gateway.gateway_process import Gateway

NAME = "SmolLM2-135M-Instruct"
KEY = "a-key-of-the-test"
BEARER = {"authorization": f"Bearer {KEY}"}
MOST_BYTES, MOST_REQUESTS = 100_000, 2
LOG_PROBS = ("log_prob_ids", "output_log_probs", "top_log_prob_ids", "top_log_probs")
ALL_INPUTS = (
    *BASE_INPUTS, "presence_penalty", "frequency_penalty", "repetition_penalty", "min_tokens", "embedding_bias",
    "return_log_probs", "num_log_probs", "guided_decoding_guide_type", "guided_decoding_guide",
)  # fmt: skip
ALL_OUTPUTS = (*BASE_OUTPUTS, *LOG_PROBS)
CHAT: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}]}
TEXT: dict[str, Any] = {"model": NAME, "prompt": "Hi"}
RENDERED = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
)
CHAT_DEFAULTS = {"text_input": RENDERED.encode(), "stream": True, "max_tokens": 1024, "temperature": 1.0}
TEXT_DEFAULTS = {"text_input": b"Hi", "stream": True, "max_tokens": 16, "temperature": 1.0}


def chat(gateway: Gateway, **fields: Any) -> Any:
    return gateway.post("/v1/chat/completions", CHAT | fields, **BEARER)


def text(gateway: Gateway, **fields: Any) -> Any:
    return gateway.post("/v1/completions", TEXT | fields, **BEARER)


def asked(triton: FakeTriton, gateway: Gateway, path: str, body: dict[str, Any], **headers: str) -> Any:
    """The one request that the server got."""
    triton.asked.clear()
    triton.answer = hello
    reply = gateway.post(path, body, **BEARER, **headers)
    assert reply.status == 200, reply.text
    (request,) = triton.asked
    return request
