"""What is refused, with the reason, to its sender alone."""

import json
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from tests.server.ensemble.asking import MAX_SEQ_LEN, post, probe
from tests.server_fixture import RunningServer
from tests.triton_client import ask, in_background

pytestmark = pytest.mark.server


def test_a_prompt_beyond_the_limit_is_refused_at_once_with_the_numbers_and_the_next_is_answered(
    server: RunningServer,
) -> None:
    probe(server)
    too_long = "river " * (MAX_SEQ_LEN + 100)
    answer = ask(server.grpc_url, text_input=too_long, max_tokens=10)
    needed = MAX_SEQ_LEN + 100 + 1 + 10
    assert f"max_tokens: needs {needed} tokens (prompt {needed - 10} + max_tokens 10)" in answer.error
    assert f"max_seq_len is {MAX_SEQ_LEN}" in answer.error
    status, body = post(server, "generate", {"text_input": too_long, "max_tokens": 10})
    assert status == 400
    assert f"needs {needed} tokens" in json.loads(body)["error"]
    probe(server)


def test_a_batch_of_nothing_to_the_detokenizer_is_refused_and_a_whole_one_answered(
    server: RunningServer, smollm2_dir: Path
) -> None:
    client = InferenceServerClient(server.grpc_url)

    def text(tokens: np.ndarray, key: np.ndarray) -> list[bytes]:
        inputs = [InferInput("TOKENS_BATCH", tokens.shape, "INT32"), InferInput("ENGINE_KEY", key.shape, "UINT64")]
        inputs[0].set_data_from_numpy(tokens)
        inputs[1].set_data_from_numpy(key)
        return list(client.infer("postprocessing", inputs, client_timeout=30).as_numpy("OUTPUT"))

    with pytest.raises(InferenceServerException, match="ENGINE_KEY"):
        text(np.zeros((0, 0, 0), np.int32), np.zeros((0, 1), np.uint64))
    with pytest.raises(InferenceServerException, match="batch"):
        text(np.zeros((0, 0, 0), np.int32), np.zeros((1, 1), np.uint64))
    tokenizer = AutoTokenizer.from_pretrained(smollm2_dir)
    tokens = np.array([[[19556, 905]]], np.int32)
    assert text(tokens, np.zeros((1, 1), np.uint64)) == [tokenizer.decode(tokens[0, 0]).encode()]
    client.close()


def test_a_string_that_is_not_whole_is_refused_and_those_beside_it_are_answered(server: RunningServer) -> None:
    over = threading.Event()
    answers: list[Any] = []

    def tokens(raw: bytes) -> Any:
        prompt = InferInput("QUERY", [1, 1], "BYTES")
        prompt._raw_content = raw  # a client that counts wrongly; tritonclient itself does not
        return client.infer("preprocessing", [prompt], client_timeout=30).as_numpy("INPUT_ID").tolist()

    def keep_asking() -> None:
        while not over.is_set():
            answers.append(tokens(struct.pack("<I", 5) + b"Hello"))

    with InferenceServerClient(server.grpc_url) as client, ThreadPoolExecutor(8) as pool:
        beside = [pool.submit(keep_asking) for _ in range(8)]
        for _ in range(50):
            with pytest.raises(InferenceServerException, match="expecting string of length 100 but only 5"):
                tokens(struct.pack("<I", 100) + b"Hello")
        over.set()
        for each in beside:
            each.result()
    assert len(answers) > 50
    assert all(answer == [[19556]] for answer in answers)


@pytest.mark.nightly
def test_a_prompt_beyond_the_pool_is_refused_with_the_numbers(smollm2_dir: Path) -> None:
    with RunningServer.start(smollm2_dir, kv_cache_tokens=256) as small:
        answer = ask(small.grpc_url, text_input="river " * 300, max_tokens=10)
        assert "needs 311 tokens (prompt 301 + max_tokens 10)" in answer.error
        assert "257" in answer.error
        probe(small)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text_input": ""}, "text_input: holds no token"),
        ({"text_input": b"\xff\xfe"}, "text_input: not valid UTF-8 at byte 0"),
        ({"max_tokens": 0}, "max_tokens: 0 is out of range"),
        ({"temperature": float("nan")}, "temperature: nan is out of range"),
        ({"top_p": float("inf")}, "top_p: inf is out of range"),
        ({"top_k": -5}, "top_k: -5 is out of range"),
        ({"end_id": 49152}, "end_id: 49152 is out of range, allowed is [0, 49151]"),
        ({"priority": 9}, "priority: 9 is out of range"),
        ({"num_return_sequences": 0}, "num_return_sequences: 0 is out of range, allowed is [1, 64]"),
        ({"num_return_sequences": 10**9}, "num_return_sequences: 1000000000 is out of range"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_bad_field_is_an_error_to_its_sender_and_the_next_request_is_answered(
    server: RunningServer, fields: dict[str, Any], message: str, stream: bool
) -> None:
    answer = ask(server.grpc_url, **{"text_input": "Hello", "max_tokens": 5, "stream": stream} | fields)
    assert message in answer.error
    assert answer.chunks == []
    for forbidden in ("Traceback", "File ", "/"):
        assert forbidden not in answer.error
    probe(server)


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_prompts_of_hardly_any_text_are_answered_or_refused_beside_a_stream_that_goes_on(
    server: RunningServer, stream: bool
) -> None:
    asked = {"text_input": "Once upon a time", "max_tokens": 24, "stream": True, "ignore_eos": True}
    alone = ask(server.grpc_url, **asked).text
    thread, beside = in_background(lambda: ask(server.grpc_url, **asked))
    for prompt in ("", " ", "\n", "\u200b", "\ufeff", "\x00", "\u0301", " \t\r\n "):
        answer = ask(server.grpc_url, text_input=prompt, max_tokens=2, stream=stream)
        if prompt == "":
            assert "text_input: holds no token" in answer.error
        else:
            assert (answer.error, answer.finals) == ("", 1)
            assert 1 <= answer.num_output <= 2
            assert answer.num_input >= 1
    thread.join()
    assert beside[0].text == alone
    probe(server)


def test_an_unknown_field_is_refused_by_name(server: RunningServer) -> None:
    status, body = post(server, "generate", {"text_input": "Hello", "max_tokens": 2, "presense_penalty": 0.5})
    assert status == 400
    assert "presense_penalty: no such input" in json.loads(body)["error"]


def test_the_priority_reaches_the_engine_by_tensor_and_by_parameter_through_the_ensemble(server: RunningServer) -> None:
    for carried in ({"priority": 9}, {"parameters": {"request_priority": 9}}):
        answer = ask(server.grpc_url, **{"text_input": "Hello", "max_tokens": 2, **carried})  # type: ignore[arg-type]
        assert "9 is out of range, allowed is 1 (most urgent) to 3" in answer.error
