"""Requests to TensorRT-LLM's token model become the engine's, one for each prompt; the rest is refused by name."""

from typing import Any

import numpy as np
import pytest

from backend.errors import InvalidRequest
from backend.serving.entries.refusals import UNSERVED
from backend.serving.entries.token_inputs import prompts_of
from backend.serving.inputs import Inputs


def rows(parameters: dict[str, object] | None = None, **fields: Any) -> list[dict[str, Any]]:
    """Fields with their batch dimension; what comes out as lists."""
    tensors = {"input_ids": [[1, 2, 3]], "input_lengths": [[3]], "request_output_len": [[5]]} | fields
    arrays = {name: np.array(value) for name, value in tensors.items() if value is not None}
    found = prompts_of(Inputs(arrays), parameters if parameters is not None else {})
    return [{name: array.tolist() for name, array in row.items()} for row in found]


def test_without_an_end_id_nothing_but_the_length_ends_an_answer() -> None:
    plain = {"input_ids": [[1, 2, 3]], "request_output_len": [[5]], "ignore_eos": [[True]]}
    assert rows() == rows(end_id=[[-1]]) == [plain]
    (ended,) = rows(end_id=[[7]])
    assert (ended["end_id"], "ignore_eos" in ended) == ([[7]], False)


def test_a_batch_becomes_one_request_per_prompt_without_its_padding() -> None:
    words = [[[5, 6], [1, 2]], [[7, 0], [1, -1]]]
    first, second = rows(
        input_ids=[[1, 2, 3], [4, 0, 0]],
        input_lengths=[[3], [1]],
        request_output_len=[[5], [6]],
        stop_words_list=words,
        seed=[[1], [2]],
    )
    assert (first["input_ids"], second["input_ids"]) == ([[1, 2, 3]], [[4]])
    assert (first["request_output_len"], second["request_output_len"]) == ([[5]], [[6]])
    assert (first["stop_words_list"], second["stop_words_list"]) == ([words[0]], [words[1]])
    assert (first["seed"], second["seed"]) == ([[1]], [[2]])


def test_top_p_of_zero_or_less_is_not_set_and_nan_is_left_to_be_refused() -> None:
    assert "runtime_top_p" not in rows(runtime_top_p=[[0.0]])[0]
    assert "runtime_top_p" not in rows(runtime_top_p=[[-1.0]])[0]
    assert rows(runtime_top_p=[[0.5]])[0]["runtime_top_p"] == [[0.5]]
    assert "runtime_top_p" in rows(runtime_top_p=[[float("nan")]])[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input_ids": None}, "input_ids: is required"),
        ({"input_ids": np.zeros((65, 1), int)}, r"input_ids: a batch of 65, allowed is \[1, 64\]"),
        ({"input_ids": np.zeros((0, 1), int)}, "input_ids: a batch of 0"),
        ({"input_lengths": [[4]]}, r"input_lengths: 4 is out of range, allowed is \[1, 3\]"),
        ({"input_lengths": [[0]]}, "input_lengths: 0 is out of range"),
        ({"input_lengths": [[-1]]}, "input_lengths: -1 is out of range"),
        ({"seed": [[1], [2]]}, "seed: a batch of 2, input_ids is one of 1"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        rows(**fields)


def test_request_type_is_refused_unless_it_is_the_usual_one_and_what_the_engine_knows_stays() -> None:
    parameters: dict[str, object] = {"request_type": "context_and_generation", "Streaming": True, "request_priority": 1}
    rows(parameters)
    assert parameters == {"request_priority": 1}
    with pytest.raises(InvalidRequest, match="request_type: 'context_only' is not supported"):
        rows({"request_type": "context_only"})


@pytest.mark.parametrize("name", sorted(UNSERVED))
def test_what_is_not_served_is_refused_by_name_unless_its_value_is_as_good_as_none(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{name}: is not supported: "):
        rows(**{name: [[1]]})
    neutral = UNSERVED[name].neutral
    if neutral is not None:
        assert rows(**{name: [[neutral]]}) == rows()


HINTS = {
    "retention_token_range_starts": [[0, 10]],
    "retention_token_range_ends": [[10, -1]],
    "retention_token_range_priorities": [[35, 35]],
}


def test_retention_hints_that_ask_for_what_happens_anyway_are_taken() -> None:
    assert rows(**HINTS, retention_token_range_durations_ms=[[-1, -1]], retention_decode_priority=[[35]]) == rows()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"retention_token_range_priorities": [[35, 90]]}, "priorities: 90 is not supported, allowed is 35"),
        ({"retention_token_range_priorities": [[35, 101]]}, r"priorities: 101 is out of range, allowed is \[0, 100\]"),
        ({"retention_token_range_priorities": [[35]]}, "priorities: 1 elements, .*starts has 2"),
        ({"retention_token_range_priorities": None}, "priorities: is required"),
        ({"retention_token_range_starts": [[-1, 10]]}, "starts: -1 is out of range"),
        ({"retention_token_range_ends": [[0, -1]]}, "ends: 0 is out of range"),
        ({"retention_token_range_durations_ms": [[-1, 5]]}, "durations_ms: 5 is not supported, allowed is -1"),
        ({"retention_token_range_durations_ms": [[-1, 0]]}, "durations_ms: 0 is out of range"),
        ({"retention_decode_priority": [[0]]}, "retention_decode_priority: 0 is not supported"),
        ({"retention_decode_duration_ms": [[-2]]}, "retention_decode_duration_ms: -2 is out of range"),
    ],
)
def test_other_retention_hints_are_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        rows(**HINTS | fields)
