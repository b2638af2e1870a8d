"""Every input about sampling, through a real server: it changes what comes back as it should, or is refused by name."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc as grpcclient

from tests.reference import Reference
from tests.server_fixture import RunningServer
from tests.triton_client import ask, collect

pytestmark = pytest.mark.server
PROMPT = "The capital of France is"
ASKED = {"text_input": PROMPT, "max_tokens": 12, "exclude_input_in_output": True}
SAMPLED = {"temperature": 0.9, "seed": 4, "repetition_penalty": 1.2}
LISTED = {"text_input": "Here is a list of words: one, two, one, two, one,", "max_tokens": 16}


@pytest.fixture(scope="module")
def server(smollm2_dir: Path) -> Iterator[RunningServer]:
    yield from RunningServer.fixture(
        smollm2_dir, max_batch_size=8, kv_cache_tokens=2048, max_seq_len=1024, weight_precision="float32"
    )


@pytest.fixture(scope="module")
def reference(smollm2_dir: Path) -> Reference:
    return Reference(smollm2_dir)


def guide(kind: str, guide: str) -> dict[str, Any]:
    return {"guided_decoding_guide_type": kind, "guided_decoding_guide": guide}


def text(server: RunningServer, **fields: Any) -> str:
    answer = ask(server.grpc_url, **ASKED | fields)
    assert answer.error == ""
    return answer.text


@torch.inference_mode()
def generated(reference: Reference, prompt: str, max_tokens: int, **options: Any) -> str:
    ids = torch.tensor([reference.prompt_ids(prompt)])
    out = reference.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False, pad_token_id=0, **options
    )
    return reference.text(prompt, out[0, ids.shape[1] :].tolist())


@pytest.mark.nightly
@pytest.mark.parametrize("stream", [True, False])
def test_a_repetition_penalty_gives_the_text_of_transformers(
    server: RunningServer, reference: Reference, stream: bool
) -> None:
    ours = text(server, **LISTED, repetition_penalty=1.3, stream=stream)
    assert ours == generated(reference, LISTED["text_input"], 16, repetition_penalty=1.3)  # type: ignore[arg-type]
    assert ours != text(server, **LISTED, stream=stream)


@pytest.mark.parametrize("field", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_each_penalty_changes_the_text(server: RunningServer, field: str) -> None:
    assert text(server, **LISTED, **{field: 2.0}) != text(server, **LISTED)


@pytest.mark.parametrize("words", ["Paris", ["Paris"], ["Paris", *(f"word{n}" for n in range(99))]])
def test_bad_words_do_not_occur_though_the_likeliest_answer_is_one(server: RunningServer, words: Any) -> None:
    assert text(server).startswith(" Paris")
    assert "Paris" not in text(server, bad_words=words)


def test_a_bad_word_of_several_tokens_forbids_its_end_and_leaves_its_beginning(server: RunningServer) -> None:
    plain = text(server)
    pair = plain[:12]
    other = text(server, bad_words=[pair.strip()])
    assert pair not in other
    assert other.startswith(" Paris")


def test_an_empty_bad_word_is_none_and_one_that_is_a_stop_word_too_never_comes(server: RunningServer) -> None:
    plain = text(server)
    assert text(server, bad_words="") == plain
    assert text(server, bad_words=["", "never said"]) == plain
    both = ask(server.grpc_url, **ASKED, bad_words=["Paris"], stop_words=["Paris"])
    assert (both.reason, both.num_output) == ("length", 12)


def test_a_bias_on_words_favours_and_forbids_them(server: RunningServer) -> None:
    favoured = text(server, embedding_bias_words=["London"], embedding_bias_weights=[60.0])
    assert favoured.startswith((" London", "London"))
    assert "Paris" not in text(server, embedding_bias_words=["Paris"], embedding_bias_weights=[-60.0])


@pytest.mark.parametrize("name", ["min_tokens", "min_length"])
def test_no_end_comes_before_the_least_length(server: RunningServer, reference: Reference, name: str) -> None:
    (ending,) = reference.prompt_ids(" Paris")
    early = ask(server.grpc_url, **ASKED, end_id=ending)
    assert (early.reason, early.num_output) == ("eos", 1)
    later = ask(server.grpc_url, **ASKED, end_id=ending, **{name: 5})
    assert later.num_output >= 6 or later.reason == "length"
    stopped = ask(server.grpc_url, **ASKED, stop_words=["."], **{name: 4})
    assert stopped.num_output > 4


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "country": {"enum": ["Italy", "France"]}},
    "required": ["city", "country"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_guided_answer_conforms_and_ends_where_the_guide_does(server: RunningServer, stream: bool) -> None:
    asked = {**ASKED, "max_tokens": 40, "stream": stream}
    whole = ask(server.grpc_url, **asked, **guide("json_schema", json.dumps(SCHEMA)))
    assert whole.reason == "eos"
    assert set(json.loads(whole.text)) == {"city", "country"}
    assert json.loads(whole.text)["country"] in ("Italy", "France")
    pattern = r" (Paris|Rome), since [0-9]{4}"
    stopped = ask(server.grpc_url, **asked, **guide("regex", pattern), ignore_eos=True, temperature=1.0, seed=3)
    assert stopped.reason == "stop"
    assert re.fullmatch(pattern, stopped.text)
    grammar = ask(server.grpc_url, **asked, **guide("ebnf_grammar", 'root ::= " " ("no" | "yes"){2,3} "."'))
    assert re.fullmatch(r" (no|yes){2,3}\.", grammar.text)
    assert text(server, guided_decoding_guide_type="json").lstrip().startswith("{")
    assert text(server, **guide("", "")) == text(server)


def test_random_seed_is_another_name_of_seed(server: RunningServer) -> None:
    sampled = {"temperature": 1.5, "max_tokens": 10}
    assert text(server, **sampled, random_seed=5) == text(server, **sampled, seed=5)
    assert text(server, **sampled, random_seed=6) != text(server, **sampled, seed=5)


@torch.inference_mode()
def expected_log_probs(reference: Reference, output: list[int]) -> torch.Tensor:
    prompt = reference.prompt_ids(PROMPT)
    logits = reference.model(torch.tensor([[*prompt, *output]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits, dim=-1)


@pytest.mark.parametrize(
    ("stream", "sampled"),
    [
        (True, SAMPLED),
        (False, {}),
        pytest.param(False, SAMPLED, marks=pytest.mark.nightly),
        pytest.param(True, {}, marks=pytest.mark.nightly),
    ],
)
def test_log_probabilities_are_those_of_transformers_logits(
    server: RunningServer, reference: Reference, stream: bool, sampled: dict[str, Any]
) -> None:
    prompt = reference.prompt_ids(PROMPT)
    fields = {"input_ids": prompt, "request_output_len": 8, "streaming": stream, "exclude_input_in_output": True}
    responses = collect(
        server.grpc_url, "inflight_batcher", **fields, **sampled, return_log_probs=True, num_log_probs=3
    )
    ids = [token for one in responses for token in one["output_ids"].reshape(-1).tolist()]
    assert len(ids) == 8
    every = expected_log_probs(reference, ids)
    chosen = np.concatenate([one["output_log_probs"].reshape(-1) for one in responses])
    np.testing.assert_allclose(chosen, every.gather(1, torch.tensor(ids)[:, None])[:, 0], atol=1e-3)
    assert responses[-1]["cum_log_probs"].item() == pytest.approx(chosen.sum(), abs=1e-4)
    assert all(one["output_log_probs"].size == one["output_ids"].size for one in responses)
    assert (len(responses) > 1) == stream
    best = every.topk(3)
    np.testing.assert_array_equal(
        np.concatenate([one["top_log_prob_ids"].reshape(-1, 3) for one in responses]), best.indices
    )
    np.testing.assert_allclose(
        np.concatenate([one["top_log_probs"].reshape(-1, 3) for one in responses]), best.values, atol=1e-3
    )


def test_the_ensemble_hands_log_probabilities_logits_and_measurements_on(server: RunningServer) -> None:
    wanted = {"return_log_probs": True, "num_log_probs": 2, "return_generation_logits": True}
    responses = collect(server.grpc_url, "ensemble", **ASKED, **wanted, return_perf_metrics=True, stream=True)
    assert sum(one["output_log_probs"].size for one in responses) == 12
    assert sum(one["generation_logits"].shape[2] for one in responses) == 12
    assert {one["generation_logits"].shape[3] for one in responses} == {49152}
    last, before = responses[-1], responses[:-1]
    times = [last[f"{name}_time_ns"].item() for name in ("arrival", "first_scheduled", "first_token", "last_token")]
    assert times == sorted(times)
    assert times[0] > 0
    blocks = {name: last[f"kv_cache_{name}_blocks"].item() for name in ("reused", "alloc_new", "alloc_total")}
    assert blocks["alloc_total"] == blocks["reused"] + blocks["alloc_new"] >= 1
    assert all("arrival_time_ns" not in one for one in before)


def test_who_does_not_ask_gets_none_of_it_and_false_leaves_counts_out(server: RunningServer) -> None:
    (plain,) = collect(server.grpc_url, "ensemble", **ASKED)
    assert set(plain) == {"text_output", "sequence_index", "finish_reason", "num_input_tokens", "num_output_tokens"}
    (fewer,) = collect(
        server.grpc_url, "ensemble", **ASKED, return_num_input_tokens=False, return_num_output_tokens=True
    )
    assert set(plain) - set(fewer) == {"num_input_tokens"}


def post(server: RunningServer, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"{server.http_url}/v2/models/ensemble/generate", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_usual_lines_of_tutorials_and_clients_are_answered(server: RunningServer) -> None:
    habits = {"bad_words": "", "stop_words": "", "pad_id": 2, "end_id": 2, "length_penalty": 1.0, "beam_width": 1}
    asked = ASKED | habits | {"repetition_penalty": 1.0, "return_log_probs": False, "return_context_logits": False}
    status, answer = post(server, asked)
    assert (status, answer["text_output"]) == (200, text(server))
    status, answer = post(server, ASKED | {"return_log_probs": True})
    assert status == 200
    assert len(answer["output_log_probs"]) == 12


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"repetition_penalty": float("inf")}, "repetition_penalty: inf is out of range, allowed is [0.0001, 10000.0]"),
        ({"presence_penalty": float("nan")}, "presence_penalty: nan is out of range"),
        ({"beam_width": 9}, "beam_width: 9 is out of range, allowed is [1, 8] (max_beam_width)"),
        ({"beam_width": 4, "stream": True}, "streaming: true is not supported with beam_width 4"),
        ({"length_penalty": 2.0}, "length_penalty: 2 is not supported"),
        ({"min_tokens": 13}, "min_tokens: 13 exceeds max_tokens, 12"),
        ({"num_log_probs": 10**9}, "num_log_probs: 1000000000 is out of range, allowed is [0, 20]"),
        ({"bad_words": [f"w{n}" for n in range(129)]}, "bad_words: 129 words, at most 128"),
        ({"bad_words": ["a b c " * 30]}, "bad_words: a word of"),
        ({"embedding_bias_words": ["a"]}, "embedding_bias_weights: 0 weights for 1 words"),
        ({"embedding_bias_words": ["a"], "embedding_bias_weights": [float("nan")]}, "nan is out of range"),
        ({"return_context_logits": True, "text_input": "a " * 200}, "tokens of the prompt by 49152 logits are"),
        ({"return_generation_logits": True, "max_tokens": 900}, "return_generation_logits: 1 sequences of 900 tokens"),
        ({"pad_id": -1}, "pad_id: -1 is no token id"),
        (guide("regex", "(a"), 'guided_decoding_guide: not a valid guide of type regex: at 1(8): invalid regex "(a"'),
        (guide("json_schema", "[]"), "guided_decoding_guide: not a valid guide of type json_schema"),
        (guide("xml", "a"), "guided_decoding_guide_type: 'xml' is not supported, allowed is json, json_schema"),
        (guide("regex", "ab") | {"bad_words": ["b", "ab"]}, "is left that the guide allows"),
    ],
)
def test_a_bad_value_is_an_error_to_its_sender_alone(
    server: RunningServer, fields: dict[str, Any], message: str
) -> None:
    answer = ask(server.grpc_url, **ASKED | fields)
    assert message in answer.error
    assert answer.chunks == []
    assert text(server, max_tokens=2) == " Paris."


def test_the_engines_own_word_lists_and_bias(server: RunningServer, reference: Reference) -> None:
    fields = {"input_ids": reference.prompt_ids(PROMPT), "request_output_len": 6, "exclude_input_in_output": True}

    def ids(**more: Any) -> list[int]:
        answer = ask(server.grpc_url, "inflight_batcher", **fields, **more)
        assert answer.error == ""
        return answer.ids

    plain = ids()
    lists = {"bad_words_list": [[*plain[1:3], plain[5]], [2, 3, -1]]}
    other = ids(**lists)
    assert other[:2] == plain[:2]
    assert other[2] != plain[2]
    assert plain[5] not in other
    assert ids(stop_words_list=[plain[2:4], [2, -1]]) == plain[:4]
    bias = np.zeros(49152, np.float32)
    bias[plain[0]] = -100.0
    assert ids(embedding_bias=bias)[0] != plain[0]
    assert ids(logit_bias_ids=[plain[0]], logit_bias_weights=[-100.0]) == ids(embedding_bias=bias)


def test_every_input_and_output_of_the_ensemble_has_the_type_of_its_steps(server: RunningServer) -> None:
    """Case 68: what a client may set on the ensemble is read by the engine, in the same type."""
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        configs = {
            name: client.get_model_config(name).config
            for name in ("ensemble", "preprocessing", "inflight_batcher", "postprocessing")
        }
    ensemble = configs["ensemble"]
    types = {tensor.name: tensor.data_type for tensor in [*ensemble.input, *ensemble.output]}
    mapped = set()
    for step in ensemble.ensemble_scheduling.step:
        config = configs[step.model_name]
        theirs = {tensor.name: tensor.data_type for tensor in [*config.input, *config.output]}
        for key, value in [*step.input_map.items(), *step.output_map.items()]:
            if not value.startswith("_"):
                assert types[value] == theirs[key], value
                mapped.add(value)
    assert mapped == set(types)
