"""Answers, whole and streamed: the same text, as stop words and seeds would have it."""

import json

import pytest

from tests.server.ensemble.asking import post
from tests.server_fixture import RunningServer
from tests.triton_client import ask, ask_all, collect

pytestmark = pytest.mark.server


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


def test_special_tokens_never_show_in_text_though_the_model_says_them(server: RunningServer) -> None:
    question = "<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\n"
    asked = {"text_input": question, "max_tokens": 40, "ignore_eos": True, "return_log_probs": True}
    (whole,) = collect(server.grpc_url, "ensemble", **asked)
    ids = whole["log_prob_ids"].reshape(-1).tolist()
    assert {1, 2} & set(ids), "it ends its turn, and begins another"
    assert b"<|" not in whole["text_output"].reshape(-1)[0], "neither those of the answer nor those of the prompt"
    streamed = collect(server.grpc_url, "ensemble", **asked, stream=True)
    assert b"<|" not in b"".join(each["text_output"].reshape(-1)[0] for each in streamed)


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
