"""What a client of the real server can rely on, beyond the text itself."""

import json
import os
import queue
import random
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpcclient

from tests.reference import Reference
from tests.server_fixture import RunningServer
from tests.triton_client import Answer, ask, ask_all, collect, in_background, tensors

pytestmark = pytest.mark.server
POOL_TOKENS, MAX_SEQ_LEN = 4096, 2048


@pytest.fixture(scope="module")
def trace_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "steps.jsonl"


@pytest.fixture(scope="module")
def server(smollm2_dir: Path, trace_file: Path) -> Iterator[RunningServer]:
    yield from RunningServer.fixture(
        smollm2_dir,
        max_batch_size=32,
        kv_cache_tokens=POOL_TOKENS,
        max_seq_len=MAX_SEQ_LEN,
        weight_precision="float32",
        parameter={"step_trace_file": trace_file},
    )


def post(server: RunningServer, path: str, body: dict[str, Any]) -> tuple[int, str]:
    request = urllib.request.Request(f"{server.http_url}/v2/models/ensemble/{path}", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def probe(server: RunningServer) -> None:
    """A short greedy request must be answered, and right."""
    answer = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, exclude_input_in_output=True)
    assert (answer.error, answer.text, answer.reason) == ("", " Paris.", "length")


def test_generate_gives_prompt_and_answer_and_the_stream_gives_the_same_answer_in_pieces(server: RunningServer) -> None:
    asked = {"text_input": "The capital of France is", "max_tokens": 12}
    status, body = post(server, "generate", asked)
    whole = json.loads(body)
    assert status == 200
    assert whole["text_output"].startswith("The capital of France is Paris.")
    assert (whole["num_input_tokens"], whole["num_output_tokens"], whole["finish_reason"]) == (5, 12, "length")
    status, body = post(server, "generate_stream", asked | {"stream": True})
    events = [json.loads(line.removeprefix("data: ")) for line in body.split("\n\n") if line]
    assert asked["text_input"] + "".join(e["text_output"] for e in events) == whole["text_output"]
    assert len(events) > 1
    assert sum(e["num_output_tokens"] for e in events) == 12
    assert [e["finish_reason"] for e in events[-2:]] == ["", "length"]


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


def test_special_tokens_never_show_in_text_though_the_model_says_them(server: RunningServer) -> None:
    question = "<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\n"
    asked = {"text_input": question, "max_tokens": 40, "ignore_eos": True, "return_log_probs": True}
    (whole,) = collect(server.grpc_url, "ensemble", **asked)
    ids = whole["log_prob_ids"].reshape(-1).tolist()
    assert {1, 2} & set(ids), "it ends its turn, and begins another"
    assert b"<|" not in whole["text_output"].reshape(-1)[0], "neither those of the answer nor those of the prompt"
    streamed = collect(server.grpc_url, "ensemble", **asked, stream=True)
    assert b"<|" not in b"".join(each["text_output"].reshape(-1)[0] for each in streamed)


def test_an_unknown_field_is_refused_by_name(server: RunningServer) -> None:
    status, body = post(server, "generate", {"text_input": "Hello", "max_tokens": 2, "presense_penalty": 0.5})
    assert status == 400
    assert "presense_penalty: no such input" in json.loads(body)["error"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_stop_word_cuts_the_text_exactly_before_it(server: RunningServer, stream: bool) -> None:
    asked = {"text_input": "List the numbers: one, two, three,", "max_tokens": 40, "exclude_input_in_output": True}
    full = ask(server.grpc_url, **asked, stream=stream).text
    stop = full[9:14]
    answer = ask(server.grpc_url, **asked, stream=stream, stop_words=[stop, "never to be found"])
    assert answer.text == full[: full.index(stop)]
    assert answer.reason == "stop"
    unhurt = ask(server.grpc_url, **asked, stream=stream, stop_words=["never to be found"])
    assert unhurt.text == full


ENDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "length": ("ensemble", {"text_input": "The capital of France is", "max_tokens": 3}),
    "whole": ("ensemble", {"text_input": "The capital of France is", "max_tokens": 3, "stream": False}),
    "stop": ("ensemble", {"text_input": "The capital of France is", "max_tokens": 9, "stop_words": ["."]}),
    "nothing": ("ensemble", {"text_input": "The capital of France is", "max_tokens": 9, "stop_words": [" Paris"]}),
    "eos": ("ensemble", {"text_input": "The capital of France is", "max_tokens": 9, "end_id": 7042}),
    "timeout": ("ensemble", {"text_input": "Once upon a time", "max_tokens": 900, "ignore_eos": True}),
    "refused": ("ensemble", {"text_input": "Hello", "max_tokens": -1}),
    "stop of nobody": ("inflight_batcher", {"stop": True, "input_ids": [0], "request_output_len": 1}),
}


@pytest.mark.parametrize("empty_final", [True, False])
def test_every_way_to_end_has_one_final_marker_or_one_error_and_nothing_after_it(
    server: RunningServer, empty_final: bool
) -> None:
    """All on one connection, so that a response too many would be seen before the next request's."""
    responses: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(callback=lambda result, error: responses.put((result, error)))
        for name, (model, fields) in ENDINGS.items():
            # Without the option Triton Server keeps a final response to itself if there is nothing in it.
            if name == "stop of nobody" and not empty_final:
                continue
            client.async_stream_infer(
                model,
                tensors({"stream": True} | fields if model == "ensemble" else fields),
                request_id=name,
                enable_empty_final_response=empty_final,
                timeout=400_000 if name == "timeout" else None,
            )
            last, reasons = False, []
            while not last:
                result, error = responses.get(timeout=60)
                assert (error is not None) == (name == "refused")
                if error is not None:
                    break
                response = result.get_response()
                assert response.id == name
                last = response.parameters["triton_final_response"].bool_param
                if result.as_numpy("finish_reason") is not None:
                    reasons.append(result.as_numpy("finish_reason").reshape(-1)[0].decode())
            expected = {"nothing": "stop", "whole": "length", "refused": "", "stop of nobody": ""}.get(name, name)
            assert "".join(reasons) == expected
        time.sleep(0.2)
        assert responses.empty()


@pytest.mark.nightly
def test_a_hundred_streams_one_after_the_other_on_one_connection_all_end(server: RunningServer) -> None:
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    def take(result: Any, error: Any) -> None:
        if error or result.get_response().parameters["triton_final_response"].bool_param:
            ended.put(str(error or result.get_response().id))

    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(callback=take)
        for number in range(100):
            asked = tensors({"text_input": f"Number {number}", "max_tokens": 2, "stream": True, "ignore_eos": True})
            client.async_stream_infer("ensemble", asked, request_id=str(number))
            assert ended.get(timeout=60) == str(number)


def test_a_seed_gives_the_same_text_again_beside_other_requests_and_other_seeds_differ(server: RunningServer) -> None:
    asked = [
        {"text_input": "Tell me a story about", "max_tokens": 16, "temperature": 1.0, "seed": seed} for seed in range(8)
    ]
    texts = [answer.text for answer in ask_all(server.grpc_url, asked, 8)]
    assert len(set(texts)) >= 7
    assert [ask(server.grpc_url, **one).text for one in asked] == texts
    unseeded = [{"text_input": "Tell me a story about", "max_tokens": 16, "temperature": 1.0} for _ in range(4)]
    assert len({answer.text for answer in ask_all(server.grpc_url, unseeded, 4)}) > 1


@pytest.mark.parametrize("stream", [True, False])
def test_several_sequences_of_one_request_are_those_of_their_seeds_and_end_with_one_final_response(
    server: RunningServer, stream: bool
) -> None:
    asked = {"text_input": "Tell me a story about a fox and", "max_tokens": 12, "temperature": 1.0, "stream": stream}
    asked["exclude_input_in_output"] = True
    several = ask(server.grpc_url, **asked, seed=40, num_return_sequences=4)
    assert (several.error, several.finals) == ("", 1)
    alone = {n: ask(server.grpc_url, **asked, seed=40 + n).text for n in range(4)}
    assert several.by_sequence == alone
    assert len(set(alone.values())) > 1


def test_the_priority_reaches_the_engine_by_tensor_and_by_parameter_through_the_ensemble(server: RunningServer) -> None:
    for carried in ({"priority": 9}, {"parameters": {"request_priority": 9}}):
        answer = ask(server.grpc_url, **{"text_input": "Hello", "max_tokens": 2, **carried})  # type: ignore[arg-type]
        assert "9 is out of range, allowed is 1 (most urgent) to 3" in answer.error


def test_a_request_joins_while_eight_others_decode_and_gets_its_first_token_before_any_of_them_ends(
    server: RunningServer, trace_file: Path
) -> None:
    running = [
        in_background(lambda: ask(server.grpc_url, text_input="Once upon a time", max_tokens=60, stream=True, end_id=5))
        for _ in range(8)
    ]
    deadline = time.monotonic() + 30
    known = 0
    while not known and time.monotonic() < deadline:
        lines = trace_file.read_text().splitlines()
        if [work[2] for work in json.loads(lines[-1])["work"]] == [1] * 8:
            known = len(lines)
        time.sleep(0.05)
    late = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, stream=True)
    for thread, _ in running:
        thread.join()
    assert late.error == ""
    steps = [json.loads(line)["work"] for line in trace_file.read_text().splitlines()[known:]]
    newcomer = max(work[0] for step in steps for work in step)
    joined = next(n for n, step in enumerate(steps) if any(work[0] == newcomer for work in step))
    others = [work for work in steps[joined] if work[0] != newcomer]
    assert len(others) == 8
    assert all(tokens == 1 for _, _, tokens in others), "the others decode in the very step that computes the prompt"
    assert all(answers[0].num_output == 60 for _, answers in running)


def test_two_hundred_requests_of_random_lengths_are_complete_and_equal_to_their_lone_runs(
    server: RunningServer, smollm2_dir: Path
) -> None:
    """Some against a lone run, to the id, and some (all, at night) against transformers' logits, up to ties of 1e-4."""
    night = bool(os.environ.get("TESTS_NIGHTLY"))
    longest_prompt, longest_output = (160, 24) if night else (48, 12)
    rng = random.Random(20)
    reference = Reference(smollm2_dir)
    asked = []
    for _ in range(200):
        ids = [rng.randrange(3, 49000) for _ in range(rng.randint(1, longest_prompt))]
        asked.append(
            {
                "model": "inflight_batcher",
                "input_ids": ids,
                "request_output_len": rng.randint(1, longest_output),
                "streaming": True,
            }
        )
    answers = ask_all(server.grpc_url, asked, 32)
    for fields, answer in zip(asked, answers, strict=True):
        check_complete(fields, answer)
    for n in range(0, 200, 1 if night else 25):
        assert reference.tied_ids(asked[n]["input_ids"], answers[n].ids)
    for n in rng.sample(range(200), 200 if night else 16):
        assert ask(server.grpc_url, **asked[n]).ids == answers[n].ids
    # The engine checks its pool whenever it runs empty and ends with an error if a block is missing.
    probe(server)


def check_complete(fields: dict[str, Any], answer: Answer) -> None:
    assert answer.error == ""
    assert answer.finals == 1
    assert answer.num_output == len(answer.ids)
    assert answer.num_input == len(fields["input_ids"])
    ended_early = answer.ids[-1] in (0, 2)
    assert answer.reason == ("eos" if ended_early else "length")
    assert ended_early or len(answer.ids) == fields["request_output_len"]
