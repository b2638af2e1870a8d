"""What is refused, with field, value and limit in the message; and what the defaults are."""

import numpy as np
import pytest

from backend.errors import InvalidRequest
from backend.sampling_params import SamplingParams
from backend.serving.inputs import Inputs
from backend.serving.request_parser import SHOWN_NAMES, ParsedRequest, RequestParser

PARSER = RequestParser(
    vocab_size=100, eos_ids=frozenset({7, 8}), priority_levels=3, default_level=2, echo_by_default=True
)


def tensor(values: object, dtype: type = np.int32) -> np.ndarray:
    return np.asarray(values, dtype=dtype)[None]


def parse(custom: str = "", **fields: np.ndarray) -> ParsedRequest:
    tensors = {"input_ids": tensor([1, 2, 3]), "request_output_len": tensor([5])} | fields
    return PARSER.parse(Inputs({k: v for k, v in tensors.items() if v is not None}, SHOWN_NAMES), custom)


def f32(value: float) -> np.ndarray:
    return tensor([value], np.float32)


def words(*values: str | bytes) -> np.ndarray:
    return tensor([v if isinstance(v, bytes) else v.encode() for v in values], np.object_)


def test_nothing_given_means_greedy_with_the_models_ends_and_the_default_level() -> None:
    parsed = parse()
    assert parsed.prompt == (1, 2, 3)
    assert parsed.sampling.greedy
    assert parsed.sampling.end_ids == {7, 8}
    assert (parsed.level, parsed.streaming, parsed.echo, parsed.stop_words) == (2, False, True, ())


@pytest.mark.parametrize("field", ["temperature", "runtime_top_p", "min_p"])
def test_any_sampling_field_turns_sampling_on_with_neutral_filters(field: str) -> None:
    sampling = parse(**{field: f32(0.5)}).sampling
    assert not sampling.greedy
    name = field.removeprefix("runtime_")
    neutral = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0} | {name: 0.5}
    assert {key: getattr(sampling, key) for key in neutral} == neutral
    assert sampling.top_k == 0


def test_requests_without_a_seed_get_different_ones_and_a_given_one_is_kept() -> None:
    assert parse().sampling.seed != parse().sampling.seed
    assert parse(seed=tensor([2**64 - 1], np.uint64)).sampling.seed == 2**64 - 1


def test_top_p_zero_means_not_set_as_tensorrt_llm_clients_send_it() -> None:
    assert parse(runtime_top_k=tensor([1]), runtime_top_p=f32(0.0), temperature=f32(1.0)).sampling.greedy


def test_an_end_id_replaces_the_models_own_and_ignore_eos_leaves_none() -> None:
    assert parse(end_id=tensor([9])).sampling.end_ids == {9}
    assert parse(end_id=tensor([9]), ignore_eos=tensor([True], np.bool_)).sampling.end_ids == frozenset()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.5])
@pytest.mark.parametrize(
    ("field", "shown"), [("temperature", "temperature"), ("runtime_top_p", "top_p"), ("min_p", "min_p")]
)
def test_numbers_out_of_range_are_refused_by_the_clients_name_of_the_field(
    field: str, shown: str, value: float
) -> None:
    with pytest.raises(InvalidRequest, match=rf"^{shown}: -?(nan|inf|0\.5) is out of range, allowed is "):
        parse(**{field: f32(value)})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"request_output_len": None}, "max_tokens: is required"),
        ({"request_output_len": tensor([0])}, "max_tokens: 0 is out of range"),
        ({"request_output_len": tensor([-1])}, "max_tokens: -1 is out of range"),
        ({"request_output_len": tensor([1, 2])}, "max_tokens: 2 elements, exactly 1 is expected"),
        ({"input_ids": tensor([])}, "input_ids: the prompt is empty"),
        ({"input_ids": tensor([1, -1])}, r"input_ids: -1 is no token id, allowed is \[0, 99\]"),
        ({"input_ids": tensor([100])}, r"input_ids: 100 is no token id, allowed is \[0, 99\]"),
        ({"input_ids": tensor([2**31 - 1])}, "input_ids: 2147483647 is no token id"),
        ({"input_ids": np.ones((2, 3), np.int32)}, "input_ids: a batch of 2"),
        ({"input_lengths": tensor([4])}, "input_lengths: 4, but input_ids holds 3"),
        ({"end_id": tensor([100])}, r"end_id: 100 is out of range, allowed is \[0, 99\]"),
        ({"end_id": tensor([-1])}, "end_id: -1 is out of range"),
        ({"stop_token_ids": tensor([5, 2**31 - 1])}, "stop_token_ids: 2147483647 is out of range"),
        ({"stop_token_ids": tensor(list(range(99)) * 3)}, None),
        ({"runtime_top_k": tensor([-2])}, "top_k: -2 is out of range"),
        ({"priority": tensor([4])}, r"priority: 4 is out of range, allowed is 1 \(most urgent\) to 3"),
        ({"priority": tensor([-1])}, "priority: -1 is out of range"),
        ({"stop_words": words(*["x"] * 33)}, "stop_words: 33 words, at most 32"),
        ({"stop_words": words("x" * 1025)}, "stop_words: 1025 bytes, at most 1024"),
        ({"stop_words": words(b"\xff\xfe")}, "stop_words: not valid UTF-8 at byte 0"),
    ],
)
def test_each_bad_field_is_named_with_its_value_and_limit(fields: dict[str, np.ndarray], message: str | None) -> None:
    if message is None:
        parse(**fields)
        return
    with pytest.raises(InvalidRequest, match=f"^{message}"):
        parse(**fields)


def test_stop_words_come_as_a_list_or_a_string_and_an_empty_one_is_none() -> None:
    assert parse(stop_words=words("")).stop_words == ()
    assert parse(stop_words=words("a", "", "b")).stop_words == ("a", "b")


def test_priority_comes_by_tensor_or_custom_parameter_and_the_tensor_wins() -> None:
    assert parse('{"request_priority": 1}').level == 1
    assert parse('{"request_priority": "3"}').level == 3
    assert parse('{"request_priority": 3}', priority=tensor([1])).level == 1
    assert parse(priority=tensor([0])).level == 2
    for bad in ("true", '"soon"', "1.5"):
        with pytest.raises(InvalidRequest, match="request_priority: .* is not an integer"):
            parse(f'{{"request_priority": {bad}}}')


def test_an_unknown_custom_parameter_is_refused_by_name_and_an_empty_one_means_none() -> None:
    parse('{"bad_words": "", "pad_id": 2}')
    with pytest.raises(InvalidRequest, match="^presence_penalty: no such input"):
        parse('{"presence_penalty": 1.0}')


def test_a_stream_never_repeats_the_prompt_and_a_whole_answer_does_unless_told_not_to() -> None:
    yes, no = tensor([True], np.bool_), tensor([False], np.bool_)
    assert parse().echo
    assert not parse(exclude_input_in_output=yes).echo
    assert not parse(streaming=yes, exclude_input_in_output=no).echo


def test_parameters_of_sampling_hold_at_their_limits() -> None:
    SamplingParams(max_tokens=1, temperature=0.0, top_p=1.0, min_p=1.0, seed=2**64 - 1).validate(10)
    with pytest.raises(InvalidRequest, match="^top_p"):
        SamplingParams(max_tokens=1, top_p=0.0).validate(10)
