"""What the server's failures become, in the midst of a stream, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.gateway.alone.asking import TEXT, chat, text
from tests.gateway.fake_triton import BASE_INPUTS, FakeTriton, Status, reply
from tests.gateway.gateway_process import Gateway, running_gateway

C = grpc.StatusCode
IN_STREAM = None  # as text, which is how Triton Server tells most
FAILURES = [
    (IN_STREAM, "max_tokens: 0 is out of range, allowed is [1, 9]", 400, "max_tokens", "max_tokens: 0 is out"),
    (IN_STREAM, "in ensemble 'ensemble', text_input: holds no token", 400, "prompt", "prompt: holds no token"),
    (IN_STREAM, "in ensemble 'ensemble', [request id: 5] stop_words: 33 words", 400, "stop", "stop: 33 words"),
    (C.INVALID_ARGUMENT, "num_return_sequences: 65", 400, "n", "n: 65"),
    (IN_STREAM, "tenant: 300 bytes", 400, "user", "user: 300 bytes"),
    (IN_STREAM, "[request id: 5] Exceeds maximum queue size", 429, None, "Exceeds maximum queue size"),
    (C.UNAVAILABLE, "Exceeds maximum queue size", 429, None, "Exceeds maximum queue size"),
    (IN_STREAM, "in ensemble 'ensemble', the server is shutting down", 503, None, "not ready or is shutting down"),
    (IN_STREAM, "Request for unknown model: 'ensemble' is not found", 503, None, "not ready"),
    (C.UNAVAILABLE, "connection refused", 503, None, "not ready"),
    (IN_STREAM, "Request timeout expired", 504, None, "took longer"),
    (C.DEADLINE_EXCEEDED, "", 504, None, "took longer"),
    (IN_STREAM, "/opt/server/secret.cc:5 failed: no memory", 502, None, "failed to answer"),
    (C.INTERNAL, "/opt/server/secret.cc:5 failed", 502, None, "failed to answer"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("code", "details", "status", "param", "message"), FAILURES, ids=str)
def test_what_the_server_refuses_has_its_status_streamed_or_not(
    triton: FakeTriton, gateway: Gateway, code: Any, details: str, status: int, param: str, message: str, stream: bool
) -> None:
    said = Status(code, details) if code else pb.ModelStreamInferResponse(error_message=details)
    triton.answer = lambda _: iter([said])
    got = text(gateway, stream=stream)
    assert (got.status, got.error["param"]) == (status, param)
    assert message in got.error["message"]
    assert "/opt" not in got.text
    assert ("retry-after" in got.headers) == (status in (429, 503))


def test_a_prompt_with_no_room_for_its_answer_has_openais_code_and_an_open_ended_chat_takes_what_there_is(
    triton: FakeTriton, gateway: Gateway
) -> None:
    def answer(request: Any) -> Iterator[Any]:
        most = next(tensor for tensor in request.inputs if tensor.name == "max_tokens").contents.int_contents[0]
        if most > 40:
            said = f"max_tokens: needs {60 + most} tokens (prompt 60 + max_tokens {most}), max_seq_len is 100"
            yield Status(C.INVALID_ARGUMENT, said)
        yield reply(str(most), "length", final=True)

    triton.answer = answer
    assert chat(gateway).json["choices"][0]["message"]["content"] == "40"
    refused = chat(gateway, max_tokens=41)
    assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(("reason", "status"), [("timeout", 504), ("cancelled", 503)])
def test_an_end_that_is_no_answer_is_an_error(triton: FakeTriton, gateway: Gateway, reason: str, status: int) -> None:
    triton.answer = lambda _: iter([reply("Hel"), reply("", reason, final=True)])
    assert chat(gateway).status == status
    *_, said = chat(gateway, stream=True).events
    assert said["error"]["code"] == reason


def test_a_stream_that_ends_before_its_answer_is_an_error(triton: FakeTriton, gateway: Gateway) -> None:
    triton.answer = lambda _: iter([reply("Hel")])
    assert chat(gateway).status == 502
    *_, said = chat(gateway, stream=True).events
    assert said["error"]["code"] == "upstream_error"


def test_a_failure_in_the_midst_of_one_prompt_ends_the_others_too(triton: FakeTriton, gateway: Gateway) -> None:
    def answer(request: Any) -> Iterator[Any]:
        if request.inputs[0].contents.bytes_contents[0] == b"bad":
            yield Status(C.INVALID_ARGUMENT, "text_input: bad")
        yield from (reply("x") for _ in range(1_000_000))

    triton.answer = answer
    triton.left.clear()
    assert text(gateway, prompt=["good", "bad"]).error["message"] == "prompt: bad"
    assert triton.left.wait(30)


def test_a_server_that_is_not_there_yet_or_comes_back_as_another_is_asked_anew(smollm2_dir: Path) -> None:
    fake = FakeTriton(str(smollm2_dir), is_ready=False)
    server = fake.start()
    with running_gateway(fake.url) as gateway:
        for got in (gateway.get("/health"), gateway.get("/v1/models"), gateway.post("/v1/completions", TEXT)):
            assert (got.status, got.error["code"]) == (503, "not_ready")
            assert got.headers["retry-after"] == "1"
        fake.is_ready = True
        assert gateway.get("/health").json == {"status": "ready"}
        assert gateway.post("/v1/completions", TEXT | {"min_tokens": 1}).error["param"] == "min_tokens"
        fake.is_ready = False
        assert gateway.get("/health").status == 503
        fake.inputs, fake.is_ready = (*BASE_INPUTS, "min_tokens"), True
        assert gateway.post("/v1/completions", TEXT | {"min_tokens": 1}).status == 200
        server.stop(0)
        assert gateway.post("/v1/completions", TEXT).status == 503
        assert gateway.get("/health").status == 503
