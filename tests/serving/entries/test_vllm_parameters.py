"""vLLM's sampling parameters: its keys and defaults, numbers as strings, and what is refused, by name."""

import json

import pytest

from backend.errors import InvalidRequest
from backend.serving.entries.vllm_parameters import KNOWN, UNSERVED, VllmParameters, parameters_of

DEEP = "is nested too deeply, at most 100 levels are allowed"


def read(**values: object) -> VllmParameters:
    return parameters_of(json.dumps(values), {})


def test_nothing_given_means_vllms_defaults() -> None:
    for text in ("", "{}"):
        parsed = parameters_of(text, {})
        assert parsed.engine == {"request_output_len": 16, "temperature": 1.0}
        assert (parsed.num_sequences, parsed.bad_words, parsed.logprobs) == (1, [], None)


def test_numbers_and_truth_values_may_be_strings_as_genai_perf_sends_them() -> None:
    as_strings = read(
        max_tokens="5", min_tokens="2", temperature="0.5", top_k="3", top_p="0.9", seed="7", n="2", ignore_eos="True",
        logprobs="1", presence_penalty="0.5", stop_token_ids=["4"], logit_bias={"9": "1.5"},
    )  # fmt: skip
    as_numbers = read(
        max_tokens=5, min_tokens=2, temperature=0.5, top_k=3, top_p=0.9, seed=7, n=2, ignore_eos=True,
        logprobs=1, presence_penalty=0.5, stop_token_ids=[4], logit_bias={"9": 1.5},
    )  # fmt: skip
    assert as_strings == as_numbers
    assert as_numbers.engine == {
        "request_output_len": 5, "min_tokens": 2, "temperature": 0.5, "runtime_top_k": 3, "runtime_top_p": 0.9,
        "seed": 7, "ignore_eos": True, "presence_penalty": 0.5, "stop_token_ids": [4],
        "logit_bias_ids": [9], "logit_bias_weights": [1.5], "return_log_probs": True, "num_log_probs": 1,
    }  # fmt: skip
    assert (as_numbers.num_sequences, as_numbers.logprobs) == (2, 1)


def test_stop_is_a_string_or_a_list_and_nothing_where_it_is_empty() -> None:
    assert read(stop="a").engine["stop_words"] == [b"a"]
    assert read(stop=["a", "", "é"]).engine["stop_words"] == [b"a", "é".encode()]
    for nothing in ("", [], None):
        assert "stop_words" not in read(stop=nothing).engine


def test_both_of_vllms_ways_to_say_all_tokens_and_no_seed_mean_that() -> None:
    assert read(top_k=-1).engine["runtime_top_k"] == read(top_k=0).engine["runtime_top_k"] == 0
    assert "seed" not in read(seed=-1).engine


def test_the_requests_own_parameters_are_read_and_may_repeat_the_tensor_but_not_contradict_it() -> None:
    assert parameters_of("", {"temperature": 0.25}).engine["temperature"] == 0.25
    same = parameters_of('{"temperature": "0.1", "top_p": "0.95"}', {"temperature": "0.1", "request_priority": 1})
    assert (same.engine["temperature"], same.engine["priority"]) == (0.1, 1)
    with pytest.raises(InvalidRequest, match="temperature: differs"):
        parameters_of('{"temperature": 0.1}', {"temperature": 0.2})


@pytest.mark.parametrize("text", ["{", "[1]", "3", '"x"', "null", "[" * 50])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="sampling_parameters: is not"):
        parameters_of(text, {})


@pytest.mark.parametrize("depth", [101, 500, *range(930, 1000, 3), 5000, 100_000])
@pytest.mark.parametrize("key", ["max_tokens", "stop", "logit_bias", "structured_outputs", "made_up"])
def test_what_is_nested_deeper_than_can_be_walked_through_is_refused_as_such(key: str, depth: int) -> None:
    """At every depth around what Python's parser, writer and ``repr`` can take."""
    for nest in ("[" * depth + "]" * depth, '{"json": ' * depth + "1" + "}" * depth):
        with pytest.raises(InvalidRequest, match=f"^sampling_parameters: {DEEP}"):
            parameters_of(f'{{"{key}": {nest}}}', {key: "5"})
        with pytest.raises(InvalidRequest, match=f"^structured_outputs: ({DEEP}|is not a JSON object)"):
            read(structured_outputs=nest)


def test_names_and_values_of_a_clients_choosing_leave_the_error_one_short_line() -> None:
    for values in ({"a\nb\x1b": 1}, {"k" * 9999: 1}, {"max_tokens": "9" * 5000}, {"seed": 10**4000}, {"n": "\n"}):
        with pytest.raises(InvalidRequest) as refused:
            read(**values)
        assert str(refused.value).isprintable()
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temprature": 1}, "temprature: no such sampling parameter"),
        ({"max_tokens": "five"}, "max_tokens: 'five' is not an integer"),
        ({"max_tokens": 2.5}, "max_tokens: 2.5 is not an integer"),
        ({"max_tokens": True}, "max_tokens: True is not an integer"),
        ({"max_tokens": 2**31}, r"max_tokens: 2147483648 is out of range, allowed is \[-2147483648, 2147483647\]"),
        ({"temperature": [1]}, r"temperature: \[1\] is not a number"),
        ({"ignore_eos": 1}, "ignore_eos: 1 is neither true nor false"),
        ({"n": 0}, r"n: 0 is out of range, allowed is \[1, 64\]"),
        ({"n": 5_000_000}, "n: 5000000 is out of range"),
        ({"seed": -2}, "seed: -2 is out of range"),
        ({"seed": 2**64}, "seed: 18446744073709551616 is out of range"),
        ({"logprobs": -1}, "logprobs: -1 is out of range"),
        ({"stop": {"a": 1}}, "stop: .* is neither a string nor a list of strings"),
        ({"stop": ["\ud800"]}, "stop: not valid Unicode at character 0"),
        ({"stop": ["x"] * 5000}, "stop: 5000 elements, at most 4096 are allowed"),
        ({"stop_token_ids": [2**40]}, "stop_token_ids: 1099511627776 is out of range"),
        ({"logit_bias": {"x": 1}}, "logit_bias: 'x' is not an integer"),
        ({"logit_bias": {"1": "much"}}, "logit_bias: 'much' is not a number"),
        ({"logit_bias": {str(2**31): 1}}, "logit_bias: 2147483648 is out of range"),
        ({"tenant": 3}, "tenant: is not a string"),
    ],
)
def test_a_bad_value_is_refused_with_its_key(values: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read(**values)


@pytest.mark.parametrize("key", sorted(UNSERVED))
def test_what_is_not_served_is_refused_by_name_unless_it_asks_for_nothing(key: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{key}: is not supported"):
        read(**{key: 5})
    for neutral in (None, *UNSERVED[key].neutral):
        assert read(**{key: neutral}) == read()


def test_the_keys_are_those_of_vllms_own_class_but_for_ours_and_its_backends() -> None:
    """SamplingParams of vLLM 0.11, by hand."""
    vllm = {
        "n", "best_of", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k",
        "min_p", "seed", "stop", "stop_token_ids", "ignore_eos", "max_tokens", "min_tokens", "logprobs",
        "prompt_logprobs", "detokenize", "skip_special_tokens", "spaces_between_special_tokens", "logits_processors",
        "include_stop_str_in_output", "truncate_prompt_tokens", "output_kind", "structured_outputs", "logit_bias",
        "allowed_token_ids", "extra_args", "bad_words",
    }  # fmt: skip
    assert vllm <= KNOWN


@pytest.mark.parametrize("key", ["structured_outputs", "guided_decoding"])
@pytest.mark.parametrize(
    ("wish", "kind", "guide"),
    [
        ({"json": {"type": "object"}}, b"json_schema", b'{"type": "object"}'),
        ({"json": '{"type": "array"}'}, b"json_schema", b'{"type": "array"}'),
        ({"regex": "a+", "json": None}, b"regex", b"a+"),
        ({"choice": ["yes", "no.", "a b"]}, b"regex", rb"yes|no\.|a\ b"),
        ({"grammar": 'root ::= "a"'}, b"ebnf_grammar", b'root ::= "a"'),
        ({"json_object": True, "disable_fallback": False}, b"json", None),
    ],
)
def test_structured_outputs_are_a_guide_as_an_object_and_as_a_string(
    key: str, wish: dict[str, object], kind: bytes, guide: bytes | None
) -> None:
    for value in (wish, json.dumps(wish)):
        engine = read(**{key: value}).engine
        assert engine["guided_decoding_guide_type"] == kind
        assert engine.get("guided_decoding_guide") == guide
    for nothing in ("", "null", {}, {"json_object": False}):
        assert read(**{key: nothing}) == read()


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("{", "structured_outputs: is not valid JSON"),
        ([1], "structured_outputs: is not a JSON object"),
        ({"structural_tag": "x"}, "structured_outputs.structural_tag: is not supported, allowed are json, json_object"),
        ({"json": {"type": "object"}, "regex": "a"}, "structured_outputs: json and regex are given, only one may be"),
        ({"json": ""}, "structured_outputs.json: is neither"),
        ({"regex": 5}, "structured_outputs.regex: is not a string, or is empty"),
        ({"regex": "\ud800"}, "structured_outputs.regex: not valid Unicode at character 0"),
        ({"choice": "yes"}, "structured_outputs.choice: is not a list of strings"),
        ({"choice": []}, "structured_outputs.choice: is not a list of strings"),
        ({"json_object": 7}, "structured_outputs.json_object: 7 is neither true nor false"),
    ],
)
def test_a_bad_structured_output_is_refused_with_its_key(wish: object, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read(structured_outputs=wish)


def test_structured_outputs_have_two_names_but_one_value() -> None:
    with pytest.raises(InvalidRequest, match="guided_decoding: is another name of structured_outputs"):
        read(structured_outputs={"regex": "a"}, guided_decoding={"regex": "a"})
