"""TensorRT-LLM's token model: shapes, increments, batches, several sequences, and what is refused."""

from typing import Any

import numpy as np
import pytest

from tests.reference import Reference
from tests.server.entries.client import FRANCE, ONCE, PATIENCE, Client, Fields, flat, token_request

pytestmark = pytest.mark.server


def test_tokens_come_whole_with_the_prompt_without_it_or_in_increments(client: Client, reference: Reference) -> None:
    prompt = list(reference.prompt_ids(FRANCE))
    expected = list(reference.greedy(FRANCE, 8))
    whole = client.ask("tensorrt_llm", **token_request(prompt, 8))
    (response,) = whole.responses
    assert np.shape(response["output_ids"]) == (1, 1, len(prompt) + 8)
    assert whole.column("output_ids") == prompt + expected
    assert whole.column("sequence_length") == [len(prompt) + 8]
    assert {"batch_index", "sequence_index"} & response.keys() == set(), "nothing to tell apart"
    bare = client.ask("tensorrt_llm", **token_request(prompt, 8, exclude_input_in_output=True))
    assert (bare.column("output_ids"), bare.column("sequence_length")) == (expected, [8])
    streamed = client.ask("tensorrt_llm", **token_request(prompt, 8, streaming=True))
    assert streamed.column("output_ids") == expected
    assert streamed.column("sequence_length") == [len(flat(r["output_ids"])) for r in streamed.responses]
    assert len(streamed.responses) > 1
    assert whole.finals == bare.finals == streamed.finals == 1


def test_only_the_clients_own_end_id_ends_a_token_request(client: Client, reference: Reference) -> None:
    """The prompt's greedy answer ends with the model's end of sequence after some tokens; here it goes on."""
    prompt = list(reference.prompt_ids(FRANCE))
    first, second, third = reference.greedy(FRANCE, 3)
    asked = token_request(prompt, 3, exclude_input_in_output=True)
    assert client.ask("tensorrt_llm", **asked).column("output_ids") == [first, second, third]
    ended = client.ask("tensorrt_llm", **asked, end_id=second)
    assert (ended.column("output_ids"), ended.column("finish_reason")) == ([first, second], [b"eos"])
    eos = 2  # of SmolLM2-Instruct, which the prompt ends with, so that the model says it again and again
    unended = client.ask("tensorrt_llm", **token_request([1, 2], 40, exclude_input_in_output=True))
    assert (len(unended.column("output_ids")), unended.column("finish_reason")) == (40, [b"length"])
    assert client.ask("tensorrt_llm", **token_request([1, 2], 3, end_id=eos)).error == ""


@pytest.mark.parametrize("streaming", [True, False])
def test_a_batch_is_so_many_requests_with_one_final_marker(
    client: Client, reference: Reference, streaming: bool
) -> None:
    prompts = [list(reference.prompt_ids(text)) for text in (FRANCE, ONCE, "One, two, three,")]
    width = max(map(len, prompts))
    reply = client.ask(
        "tensorrt_llm",
        input_ids=[ids + [0] * (width - len(ids)) for ids in prompts],
        input_lengths=[[len(ids)] for ids in prompts],
        request_output_len=[[3], [9], [5]],
        exclude_input_in_output=[[True]] * 3,
        streaming=[[streaming]] * 3,
    )
    assert (reply.error, reply.finals) == ("", 1)
    for index, (text, count) in enumerate(((FRANCE, 3), (ONCE, 9), ("One, two, three,", 5))):
        mine = [r for r in reply.responses if flat(r["batch_index"]) == [index]]
        assert [token for r in mine for token in flat(r["output_ids"])] == list(reference.greedy(text, count))


def test_one_bad_prompt_of_a_batch_fails_alone_and_the_others_are_answered(client: Client) -> None:
    client.send(
        "tensorrt_llm",
        input_ids=[[504], [49152], [-1], [2**31 - 1]],
        input_lengths=[[1]] * 4,
        request_output_len=[[2]] * 4,
    )
    errors, answers = [], []
    while len(errors) + len(answers) < 4:
        result, error = client.responses.get(timeout=PATIENCE)
        if error is not None:
            errors.append(error.message())
        elif result.as_numpy("output_ids") is not None:
            answers.append(result.as_numpy("batch_index").item())
    assert answers == [0]
    assert len(errors) == 3
    assert all("is no token id, allowed is [0, 49151]" in error for error in errors)


def test_several_sequences_are_told_apart_by_their_index(client: Client) -> None:
    reply = client.ask("tensorrt_llm", **token_request([504, 3575], 6, num_return_sequences=3, temperature=1.0, seed=4))
    assert (sorted(reply.column("sequence_index")), reply.finals) == ([0, 1, 2], 1)
    assert len({str(r["output_ids"]) for r in reply.responses}) == 3


@pytest.mark.parametrize(
    ("fields", "parameters", "message"),
    [
        ({"input_ids": [504], "input_lengths": [2]}, None, "input_lengths: 2 is out of range, allowed is [1, 1]"),
        ({"request_output_len": [0]}, None, "max_tokens: 0 is out of range"),
        ({"temperature": float("nan")}, None, "temperature: nan is out of range"),
        ({"runtime_top_p": float("inf")}, None, "top_p: inf is out of range"),
        ({"end_id": 49152}, None, "end_id: 49152 is out of range"),
        ({"num_return_sequences": 10**9}, None, "num_return_sequences: 1000000000 is out of range"),
        ({"draft_input_ids": [1]}, None, "draft_input_ids: is not supported: there is no speculative decoding"),
        ({"lora_task_id": 7}, None, "lora_task_id: is not supported"),
        ({"retention_token_range_starts": [0]}, None, "retention_token_range_ends: is required"),
        ({"stop": True}, None, "stop: needs the request id"),
        ({}, {"request_type": "context_only"}, "request_type: 'context_only' is not supported"),
        ({}, {"typo": 1}, "typo: no such input"),
        ({}, {"typo": 0.5}, "typo: no such input"),
        ({}, {"tenant": 0.5}, "tenant: 0.5 is not a string"),
        ({}, {"request_priority": 1.5}, "request_priority: 1.5 is not an integer"),
    ],
)
def test_what_is_not_served_or_out_of_range_is_refused_by_name(
    client: Client, fields: Fields, parameters: Any, message: str
) -> None:
    reply = client.ask("tensorrt_llm", **token_request([504, 3575], 2) | fields, parameters=parameters)
    assert message in reply.error
    assert reply.responses == []
    for forbidden in ("Traceback", "File ", "/"):
        assert forbidden not in reply.error


def test_word_lists_bias_and_penalties_have_their_effect(client: Client, reference: Reference) -> None:
    prompt = list(reference.prompt_ids(FRANCE))
    plain = list(reference.greedy(FRANCE, 6))

    def tokens(**fields: Any) -> list[int]:
        reply = client.ask("tensorrt_llm", **token_request(prompt, 6, exclude_input_in_output=True, **fields))
        assert reply.error == ""
        return reply.column("output_ids")

    assert tokens() == plain
    assert tokens(stop_words_list=[plain[1:3], [2, -1]]) == plain[:3]
    assert plain[0] not in tokens(bad_words_list=[plain[:1], [1]])
    guided = tokens(guided_decoding_guide_type="regex", guided_decoding_guide=" Rome| Lyon")
    assert reference.text(FRANCE, guided) in (" Rome", " Lyon")
    bias = np.zeros(49152, np.float32)
    bias[100] = 1000.0
    assert tokens(embedding_bias=bias) == [100] * 6
    for changed in ({"repetition_penalty": 50.0}, {"presence_penalty": 90.0}, {"temperature": 2.0, "seed": 5}):
        assert tokens(**changed) != plain


def test_log_probabilities_and_logits_come_with_their_tokens(client: Client, reference: Reference) -> None:
    prompt = list(reference.prompt_ids(FRANCE))
    asked = token_request(
        prompt, 3, streaming=True, return_log_probs=True, num_log_probs=2, return_generation_logits=True,
        return_perf_metrics=True,
    )  # fmt: skip
    reply = client.ask("tensorrt_llm", **asked)
    expected = reference.log_probs(prompt)
    taken = reply.column("output_ids")
    first = reply.responses[0]
    assert flat(first["output_log_probs"])[0] == pytest.approx(float(expected[taken[0]]), abs=2e-3)
    assert flat(first["top_log_prob_ids"])[:2] == expected.topk(2).indices.tolist()
    assert sum(reply.column("output_log_probs")) == pytest.approx(reply.column("cum_log_probs")[-1], abs=1e-4)
    logits = np.array(first["generation_logits"], np.float32)
    assert logits.shape == (1, 1, len(flat(first["output_ids"])), 49152)
    assert int(logits[0, 0, 0].argmax()) == taken[0]
    assert reply.column("kv_cache_alloc_total_blocks")[-1] >= 1
    times = [
        reply.column(f"{name}_time_ns")[-1] for name in ("arrival", "first_scheduled", "first_token", "last_token")
    ]
    assert times == sorted(times)
