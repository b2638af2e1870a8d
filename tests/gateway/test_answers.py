"""What comes back: answers, streams, errors and bounds, before a service that says what the test wants said."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2 as pb

from tests.gateway.fake_triton import BASE_INPUTS, BASE_OUTPUTS, FakeTriton, Status, hello, reply
from tests.gateway.gateway_process import Gateway, running_gateway

NAME = "SmolLM2-135M-Instruct"
LOG_PROBS = ("log_prob_ids", "output_log_probs", "top_log_prob_ids", "top_log_probs")
CHAT: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}]}
TEXT: dict[str, Any] = {"model": NAME, "prompt": "Hi"}
KEY = "a-key-of-the-test"
BEARER = {"authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def triton(smollm2_dir: Path) -> Iterator[FakeTriton]:
    fake = FakeTriton(
        str(smollm2_dir), (*BASE_INPUTS, "return_log_probs", "num_log_probs"), (*BASE_OUTPUTS, *LOG_PROBS)
    )
    server = fake.start()
    yield fake
    server.stop(0)


@pytest.fixture(scope="module")
def gateway(triton: FakeTriton) -> Iterator[Gateway]:
    with running_gateway(triton.url, "--max-body-bytes", "2000", "--max-requests", "2", key=KEY) as running:
        yield running


def chat(gateway: Gateway, **fields: Any) -> Any:
    return gateway.post("/v1/chat/completions", CHAT | fields, **BEARER)


def text(gateway: Gateway, **fields: Any) -> Any:
    return gateway.post("/v1/completions", TEXT | fields, **BEARER)


def test_a_whole_chat_answer(triton: FakeTriton, gateway: Gateway) -> None:
    triton.answer = hello
    answer = chat(gateway)
    content = answer.json
    assert content["id"].startswith("chatcmpl-")
    assert answer.headers["x-request-id"] == content["id"] == triton.asked[-1].id
    assert abs(content["created"] - time.time()) < 60
    assert (content["object"], content["model"]) == ("chat.completion", NAME)
    assert content["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
        }
    ]
    assert content["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}


def test_a_streamed_chat_answer(triton: FakeTriton, gateway: Gateway) -> None:
    triton.answer = hello
    answer = chat(gateway, stream=True, stream_options={"include_usage": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, last = answer.events
    deltas = [(c["choices"][0]["delta"], c["choices"][0]["finish_reason"]) for c in chunks]
    assert deltas == [
        ({"role": "assistant", "content": ""}, None),
        ({"content": "Hel"}, None),
        ({"content": "lo"}, "length"),
    ]
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert all(c["usage"] is None for c in chunks)
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 10)
    assert all("usage" not in chunk for chunk in chat(gateway, stream=True).events)


@pytest.mark.parametrize("stream", [False, True])
def test_several_prompts_with_several_choices_each_are_numbered_through(
    triton: FakeTriton, gateway: Gateway, stream: bool
) -> None:
    def answer(request: Any) -> Iterator[Any]:
        prompt = request.inputs[0].contents.bytes_contents[0].decode()
        yield reply(f"{prompt}1", index=1)
        yield reply(f"{prompt}0", "eos", index=0)
        yield reply("!", "stop", index=1, final=True)

    triton.answer = answer
    got = text(gateway, prompt=["a", "b"], n=2, stream=stream, echo=True)
    chunks = [c for event in (got.events if stream else [got.json]) for c in event["choices"]]
    texts = {index: "".join(c["text"] for c in chunks if c["index"] == index) for index in range(4)}
    assert texts == {0: "aa0", 1: "aa1!", 2: "bb0", 3: "bb1!"}
    assert {c["finish_reason"] for c in chunks} == {"stop"} | ({None} if stream else set())
    if not stream:
        assert got.json["usage"] == {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


def with_log_probs(tokens: list[int]) -> Any:
    """A response per token; the alternatives of each are itself and token 5."""

    def answer(_: Any) -> Iterator[Any]:
        for at, token in enumerate(tokens):
            details = {
                "log_prob_ids": np.array([[token]]), "output_log_probs": np.array([[-0.5 - at]]),
                "top_log_prob_ids": np.array([[token, 5]]), "top_log_probs": np.array([[-0.5 - at, -3.0]]),
            }  # fmt: skip
            last = at == len(tokens) - 1
            yield reply("x", "length" if last else "", final=last, **details)

    return answer


def test_log_probabilities_in_both_forms(triton: FakeTriton, gateway: Gateway, smollm2_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    ids = tokenizer.encode(" Paris 🦜.").ids
    assert len(ids) > 4, "the parrot is several tokens, none of which is a character"
    other = tokenizer.decode([5], skip_special_tokens=False)
    triton.answer = with_log_probs(ids)
    entries = chat(gateway, logprobs=True, top_logprobs=2).json["choices"][0]["logprobs"]["content"]
    assert (entries[0]["token"], entries[0]["logprob"], entries[1]["logprob"]) == (" Paris", -0.5, -1.5)
    assert bytes(b for entry in entries for b in entry["bytes"]).decode() == " Paris 🦜."
    alternatives = [{k: top[k] for k in ("token", "logprob")} for top in entries[0]["top_logprobs"]]
    assert alternatives == [{"token": " Paris", "logprob": -0.5}, {"token": other, "logprob": -3.0}]
    streamed = [c for e in chat(gateway, logprobs=True, top_logprobs=2, stream=True).events for c in e["choices"]]
    assert [entry for c in streamed if c["logprobs"] for entry in c["logprobs"]["content"]] == entries

    whole = text(gateway, logprobs=2).json["choices"][0]["logprobs"]
    assert whole["tokens"][0] == " Paris"
    assert whole["token_logprobs"] == [-0.5 - at for at in range(len(ids))]
    assert whole["text_offset"][:2] == [0, len(" Paris")]
    assert whole["text_offset"][-1] == len(" Paris 🦜")
    assert any(token.startswith("bytes:\\x") for token in whole["tokens"])
    assert whole["top_logprobs"][0] == {" Paris": -0.5, other: -3.0}
    parts = [e["choices"][0]["logprobs"] for e in text(gateway, logprobs=2, stream=True).events]
    assert [offset for part in parts for offset in part["text_offset"]] == whole["text_offset"]


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


def endless(release: threading.Event) -> Any:
    """One piece, and then one whenever a while has passed."""

    def answer(_: Any) -> Iterator[Any]:
        while not release.wait(0.02):
            yield reply("x")
        yield reply("x", "length", final=True)

    return answer


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_the_call(triton: FakeTriton, gateway: Gateway, stream: bool) -> None:
    release = threading.Event()
    triton.answer = endless(release)
    triton.left.clear()
    triton.asked.clear()
    connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=60)
    headers = {"content-type": "application/json", **BEARER}
    connection.request("POST", "/v1/chat/completions", json.dumps(CHAT | {"stream": stream}), headers)
    response = connection.getresponse() if stream else None
    assert response is None or b"data: {" in response.read(50)
    while not triton.asked:
        time.sleep(0.01)
    assert not triton.left.is_set()
    if response is not None:
        response.close()
    connection.close()
    assert triton.left.wait(30)
    release.set()


def test_more_requests_than_there_is_room_for_are_told_to_come_later(triton: FakeTriton, gateway: Gateway) -> None:
    release = threading.Event()
    triton.answer = endless(release)
    triton.asked.clear()
    threads = [threading.Thread(target=chat, args=(gateway,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    while len(triton.asked) < 2:
        time.sleep(0.01)
    refused = chat(gateway)
    assert (refused.status, refused.error["code"]) == (429, "too_many_requests")
    assert refused.headers["retry-after"] == "1"
    assert gateway.get("/v1/models", **BEARER).status == 200
    release.set()
    for thread in threads:
        thread.join()
    triton.answer = hello
    assert chat(gateway).status == 200


def test_a_body_beyond_the_limit_is_refused_whether_its_length_is_declared_or_not(
    triton: FakeTriton, gateway: Gateway
) -> None:
    triton.answer = hello
    assert text(gateway, prompt="x" * 1900).status == 200
    large = text(gateway, prompt="x" * 2000)
    assert (large.status, large.error["code"]) == (413, "body_too_large")
    connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=60)
    connection.request("POST", "/v1/completions", iter([b"x" * 1500] * 2), BEARER, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_with_a_key_only_health_is_open(triton: FakeTriton, gateway: Gateway) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {KEY}"}, {"authorization": KEY}):
        refused = gateway.post("/v1/chat/completions", CHAT, **headers)
        assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
        assert gateway.get("/v1/models", **headers).status == 401
    assert gateway.get("/health").status == 200


def test_models_and_other_places(triton: FakeTriton, gateway: Gateway) -> None:
    (listed,) = gateway.get("/v1/models", **BEARER).json["data"]
    assert (listed["id"], listed["object"]) == (NAME, "model")
    assert gateway.get(f"/v1/models/{NAME}", **BEARER).json == listed
    for unknown in (gateway.get("/v1/models/gpt-9", **BEARER), chat(gateway, model="gpt-9")):
        assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")
        assert NAME in unknown.error["message"]
    assert gateway.get("/v1/nothing", **BEARER).error["type"] == "not_found_error"
    assert gateway.get("/v1/completions", **BEARER).status == 405


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
