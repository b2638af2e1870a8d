"""Who may ask, how much at a time, and for what; and a client that leaves."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.alone.asking import BEARER, CHAT, KEY, MOST_BYTES, MOST_REQUESTS, NAME, chat, text
from tests.gateway.fake_triton import FakeTriton, hello, reply
from tests.gateway.gateway_process import Gateway


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
    threads = [threading.Thread(target=chat, args=(gateway,)) for _ in range(MOST_REQUESTS)]
    for thread in threads:
        thread.start()
    while len(triton.asked) < MOST_REQUESTS:
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
    assert text(gateway, prompt="x" * (MOST_BYTES - 100)).status == 200
    large = text(gateway, prompt="x" * MOST_BYTES)
    assert (large.status, large.error["code"]) == (413, "body_too_large")
    connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=60)
    connection.request("POST", "/v1/completions", iter([b"x" * (MOST_BYTES - 500)] * 2), BEARER, encode_chunked=True)
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
