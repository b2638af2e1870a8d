"""The vLLM backend's model: its echo, its increments, its n, its JSON, and what is refused."""

import json
from typing import Any

import numpy as np
import pytest

from tests.reference import Reference
from tests.server.entries.client import FRANCE, ONCE, Client, Fields, Reply, post
from tests.server_fixture import RunningServer

pytestmark = pytest.mark.server


def vllm(client: Client, text: str = FRANCE, sampling: Fields | None = None, **fields: Any) -> Reply:
    given = {} if sampling is None else {"sampling_parameters": json.dumps(sampling)}
    return client.ask("vllm_model", text_input=text, **given, **fields)


def test_vllm_repeats_the_prompt_in_whole_answers_alone(client: Client, reference: Reference) -> None:
    greedy = {"temperature": "0", "max_tokens": "8"}
    answer = reference.text(FRANCE, reference.greedy(FRANCE, 8))
    whole = vllm(client, sampling=greedy)
    assert [np.shape(r["text_output"]) for r in whole.responses] == [(1,)]
    assert whole.text() == FRANCE + answer
    assert vllm(client, sampling=greedy, exclude_input_in_output=True).text() == answer
    streamed = vllm(client, sampling=greedy, stream=True)
    assert (streamed.text(), streamed.finals) == (answer, 1)
    assert len(streamed.responses) > 1
    refused = vllm(client, sampling=greedy, stream=True, exclude_input_in_output=False)
    assert "exclude_input_in_output: false is not allowed when streaming" in refused.error


def test_vllm_counts_and_reasons_come_where_they_are_asked_for(client: Client, reference: Reference) -> None:
    flags = {"return_finish_reason": True, "return_num_input_tokens": True, "return_num_output_tokens": True}
    sampling = {"temperature": 0, "max_tokens": 5}
    assert set(vllm(client, sampling=sampling).responses[0]) == {"text_output"}
    for stream in (True, False):
        reply = vllm(client, sampling=sampling, stream=stream, **flags)
        assert reply.column("finish_reason")[-1] == b"length"
        assert set(reply.column("finish_reason")[:-1]) <= {b"None"}
        assert sum(reply.column("num_output_tokens")) == 5
        assert set(reply.column("num_input_tokens")) == {len(reference.prompt_ids(FRANCE))}
    stopped = vllm(client, sampling=sampling | {"stop": " Paris"}, exclude_input_in_output=True, **flags)
    assert (stopped.text(), stopped.column("finish_reason")) == ("", [b"stop"])


def test_vllms_n_gives_one_element_per_answer_whole_and_streamed(client: Client) -> None:
    sampling = {"temperature": 1.0, "seed": 5, "max_tokens": 12, "n": 3}
    whole = vllm(client, sampling=sampling, exclude_input_in_output=True)
    (response,) = whole.responses
    texts = [text.decode() for text in response["text_output"]]
    assert len(set(texts)) == 3
    streamed = vllm(client, sampling=sampling, stream=True)
    assert all(len(r["text_output"]) == 3 for r in streamed.responses)
    assert ["".join(r["text_output"][n].decode() for r in streamed.responses) for n in range(3)] == texts
    assert whole.finals == streamed.finals == 1


def test_vllm_samples_unless_told_otherwise_and_a_seed_fixes_what_it_says(client: Client) -> None:
    def text(**sampling: Any) -> str:
        return vllm(client, ONCE, {"max_tokens": 12} | sampling).text()

    assert text(seed=3) == text(seed=3)
    assert len({text() for _ in range(4)}) > 1
    assert text(temperature=0) == text(temperature=1e-9) == text(top_k=1)


def test_generate_takes_vllms_sampling_parameters_as_further_keys(server: RunningServer, reference: Reference) -> None:
    asked = {"text_input": FRANCE, "temperature": 0, "max_tokens": 4}
    expected = FRANCE + reference.text(FRANCE, reference.greedy(FRANCE, 4))
    status, body = post(server, "vllm_model/generate", asked)
    assert (status, json.loads(body)["text_output"]) == (200, expected)
    nested = {"text_input": FRANCE, "parameters": {"temperature": 0, "max_tokens": 4}}
    assert json.loads(post(server, "vllm_model/generate", nested)[1])["text_output"] == expected
    status, body = post(server, "vllm_model/generate", asked | {"temprature": 0})
    assert (status, "temprature: no such sampling parameter" in body) == (400, True)


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"max_tokens": 0}, "max_tokens: 0 is out of range"),
        ({"top_p": 0.0, "max_tokens": -3}, "max_tokens: -3 is out of range"),
        ({"temperature": "nan"}, "temperature: nan is out of range"),
        ({"min_p": "inf"}, "min_p: inf is out of range"),
        ({"stop_token_ids": [49152]}, "stop_token_ids: 49152 is out of range"),
        ({"prompt_logprobs": 3}, "prompt_logprobs: is not supported"),
        ({"lora_name": "x"}, "lora_name: is not supported"),
        ({"n": 5_000_000}, "n: 5000000 is out of range, allowed is [1, 64]"),
        ({"priority": 9}, "priority: 9 is out of range"),
    ],
)
def test_a_bad_sampling_parameter_is_refused_by_name(client: Client, sampling: Fields, message: str) -> None:
    reply = vllm(client, sampling=sampling)
    assert message in reply.error
    assert reply.responses == []


@pytest.mark.parametrize("text", ["", b"\xff\xfe"])
def test_a_prompt_that_holds_no_text_is_refused(client: Client, text: Any) -> None:
    assert "text_input: " in vllm(client, text, {"max_tokens": 2}).error


EFFECTS: list[Fields] = [
    {"presence_penalty": 20.0},
    {"frequency_penalty": 20.0},
    {"repetition_penalty": 5.0},
    {"logit_bias": {"260": 100.0}},
    {"bad_words": ["Paris"]},
    {"stop": ["Paris"]},
    {"stop_token_ids": [7042]},
    {"max_tokens": 5},
    {"temperature": 1.5, "seed": 11},
    {"structured_outputs": {"choice": [" Rome", " Lyon"]}},
]


@pytest.mark.parametrize("changed", EFFECTS, ids=lambda fields: next(iter(fields)))
def test_every_sampling_parameter_that_is_taken_changes_the_text(
    client: Client, reference: Reference, changed: Fields
) -> None:
    plain = FRANCE + reference.text(FRANCE, reference.greedy(FRANCE, 9))
    other = vllm(client, sampling={"temperature": 0, "max_tokens": 9} | changed)
    assert other.error == ""
    assert other.text() != plain
    if "bad_words" in changed:
        assert "Paris" not in other.text()
    if "structured_outputs" in changed:
        assert other.text().removeprefix(FRANCE) in (" Rome", " Lyon")


@pytest.mark.nightly
def test_filters_with_the_same_seed_change_what_is_drawn(client: Client) -> None:
    def text(**sampling: Any) -> str:
        return vllm(client, ONCE, {"temperature": 1.5, "seed": 3, "max_tokens": 12} | sampling).text()

    assert len({text(), text(top_k=2), text(top_p=0.2), text(min_p=0.3)}) >= 3


@pytest.mark.nightly
def test_min_tokens_and_ignore_eos_keep_an_answer_going(client: Client) -> None:
    question = "<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\n"
    flags = {"return_num_output_tokens": True, "return_finish_reason": True}

    def count(**sampling: Any) -> tuple[int, bytes]:
        reply = vllm(client, question, {"temperature": 0, "max_tokens": 40} | sampling, **flags)
        return sum(reply.column("num_output_tokens")), reply.column("finish_reason")[-1]

    natural, reason = count()
    assert (natural < 35, reason) == (True, b"stop")
    assert count(min_tokens=natural + 5)[0] >= natural + 5
    assert count(ignore_eos=True) == (40, b"length")


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_log_probabilities_are_those_of_transformers(client: Client, reference: Reference, stream: bool) -> None:
    asked = {"return_logprobs": True, "return_cumulative_logprob": True, "stream": stream}
    reply = vllm(client, sampling={"temperature": 0, "max_tokens": 4, "logprobs": 2}, **asked)
    shown = [token for column in reply.column("logprobs") for token in json.loads(column)]
    expected, total = reference.greedy(FRANCE, 4), 0.0
    for place, (tokens, taken) in enumerate(zip(shown, expected, strict=True)):
        log_probs = reference.log_probs([*reference.prompt_ids(FRANCE), *expected[:place]])
        best = log_probs.topk(2)
        assert {int(token) for token in tokens} == set(best.indices.tolist()) | {taken}
        for token, shown_one in tokens.items():
            assert shown_one["logprob"] == pytest.approx(float(log_probs[int(token)]), abs=2e-3)
        assert (tokens[str(taken)]["rank"], tokens[str(taken)]["decoded_token"]) == (
            1,
            reference.tokenizer.decode(taken),
        )
        total += float(log_probs[taken])
    assert reply.column("cumulative_logprob")[-1] == pytest.approx(total, abs=5e-3)


def test_logprobs_without_the_flag_that_shows_them_are_refused_and_the_flag_alone_gives_null(client: Client) -> None:
    assert "logprobs: needs return_logprobs" in vllm(client, sampling={"logprobs": 1}).error
    assert vllm(client, sampling={"max_tokens": 2}, return_logprobs=True).column("logprobs") == [b"null"]
