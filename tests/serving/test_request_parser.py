"""What is refused, with field, value and limit in the message."""

import dataclasses
import json

import numpy as np
import pytest

from backend.errors import InvalidRequest
from backend.serving.beam_inputs import BeamLimits
from backend.serving.inputs import Inputs
from backend.serving.request_parser import SHOWN_NAMES
from tests.serving.parsing import BEAMS, GUIDE, GUIDE_TYPE, NO, PARSER, YES, bias, f32, parse, tensor, words


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
        ({"repetition_penalty": f32(0)}, r"repetition_penalty: 0.0 is out of range, allowed is \[0.0001, 10000.0\]"),
        ({"presence_penalty": f32(101)}, r"presence_penalty: 101.0 is out of range, allowed is \[-100.0, 100.0\]"),
        ({"frequency_penalty": f32(np.nan)}, "frequency_penalty: nan is out of range"),
        ({"min_tokens": tensor([-1])}, "min_tokens: -1 is out of range"),
        ({"min_tokens": tensor([6])}, "min_tokens: 6 exceeds max_tokens, 5"),
        ({"min_tokens": tensor([1]), "min_length": tensor([1])}, "min_length: is another name of min_tokens"),
        (
            {"seed": tensor([1], np.uint64), "random_seed": tensor([1], np.uint64)},
            "random_seed: is another name of seed",
        ),
        (
            {GUIDE_TYPE: words("xml")},
            f"{GUIDE_TYPE}: 'xml' is not supported, allowed is json, json_schema, regex",
        ),
        ({GUIDE: words("a+")}, f"{GUIDE_TYPE}: is required with {GUIDE}, allowed is json, "),
        ({GUIDE_TYPE: words("regex")}, f"{GUIDE}: is required with {GUIDE_TYPE} regex"),
        ({GUIDE_TYPE: words("json"), GUIDE: words("{}")}, f"{GUIDE}: is not taken with {GUIDE_TYPE} json"),
        ({GUIDE_TYPE: words("regex"), GUIDE: words(b"\xff")}, f"{GUIDE}: not valid UTF-8 at byte 0"),
        (
            {GUIDE_TYPE: words("json_schema"), GUIDE: words("x" * 65537)},
            f"{GUIDE}: 65537 bytes, at most 65536 are allowed with json_schema",
        ),
        (
            {GUIDE_TYPE: words("ebnf_grammar"), GUIDE: words("x" * 8193)},
            f"{GUIDE}: 8193 bytes, at most 8192 are allowed with ebnf_grammar",
        ),
        ({GUIDE_TYPE: words("json", "json")}, f"{GUIDE_TYPE}: 2 elements, exactly 1 is expected"),
        ({"num_log_probs": tensor([21])}, r"num_log_probs: 21 is out of range, allowed is \[0, 20\]"),
        ({"num_log_probs": tensor([-1])}, "num_log_probs: -1 is out of range"),
        ({"num_log_probs": tensor([10**9])}, "num_log_probs: 1000000000 is out of range"),
        ({"embedding_bias": f32(1)}, "embedding_bias: 1 elements, the vocabulary has 100"),
        ({"embedding_bias": tensor([np.nan] * 100, np.float32)}, "embedding_bias: nan for id 0 is out of range"),
        ({"embedding_bias": tensor([0] * 99 + [np.inf], np.float32)}, "embedding_bias: inf for id 99 is out of range"),
        ({"logit_bias_ids": tensor([1])}, "logit_bias_weights: is required with logit_bias_ids"),
        ({"logit_bias_weights": f32(1)}, "logit_bias_ids: is required with logit_bias_weights"),
        (bias([100], [1]), r"logit_bias_ids: 100 is out of range, allowed is \[0, 99\]"),
        (bias([-1, 3], [1, 1]), "logit_bias_ids: -1 is out of range"),
        (bias([2**31 - 1], [1]), "logit_bias_ids: 2147483647 is out of range"),
        (bias([1], [np.nan]), "logit_bias_weights: nan is out of range"),
        (bias([1], [-np.inf]), "logit_bias_weights: -inf is out of range"),
        (bias([1, 2], [1]), "logit_bias_weights: 1 elements, logit_bias_ids has 2"),
        (bias([1] * 4097, [1] * 4097), "logit_bias_ids: 4097 ids, at most 4096"),
        ({"bad_words_list": tensor([[1, 100], [1, 2]])}, r"bad_words_list: 100 is out of range, allowed is \[0, 99\]"),
        (
            {"bad_words_list": tensor([[1, 2], [3, -1]])},
            "bad_words_list: offset 3 ends no word: 0 is before it, 2 ids there are",
        ),
        (
            {"bad_words_list": tensor([[1, 2], [2, 2]])},
            "bad_words_list: offset 2 ends no word: 2 is before it, 2 ids there are",
        ),
        ({"bad_words_list": tensor([[1, 2], [-1, 2]])}, "bad_words_list: an offset after the padding, -1"),
        ({"bad_words_list": tensor([1, 2])}, r"bad_words_list: shape \[1, 2\], expected is \[2, N\]"),
        ({"bad_words_list": tensor([[1] * 513, range(1, 514)])}, "bad_words_list: 513 words, at most 512"),
        ({"bad_words_list": tensor([[1] * 65, [65] + [-1] * 64])}, "bad_words_list: 65 ids, at most 64"),
        ({"stop_words_list": tensor([[-1], [1]])}, "stop_words_list: -1 is out of range"),
        ({"stop_words_list": np.zeros((1, 2, 40000), np.int32)}, "stop_words_list: 40000 ids, at most 32768"),
        (
            {"return_generation_logits": YES, "request_output_len": tensor([10**6])},
            "return_generation_logits: 1 sequences of 1000000 ",
        ),
        (
            {
                "return_generation_logits": YES,
                "request_output_len": tensor([9999]),
                "num_return_sequences": tensor([9]),
            },
            "return_generation_logits: 9 sequences of 9999 tokens",
        ),
        (
            {"return_context_logits": YES, "input_ids": tensor([1] * 83_887)},
            "return_context_logits: 83887 tokens of the prompt by 100 logits are 33554800 bytes, at most 33554432",
        ),
        ({"return_context_logits": YES, "input_ids": tensor([1] * 83_886)}, None),
        ({"beam_width": tensor([5])}, r"beam_width: 5 is out of range, allowed is \[1, 4\] \(max_beam_width\)"),
        ({"beam_width": tensor([0])}, "beam_width: 0 is out of range"),
        ({"beam_width": tensor([-1])}, "beam_width: -1 is out of range"),
        ({"beam_width": tensor([10**9])}, "beam_width: 1000000000 is out of range"),
        ({"len_penalty": f32(0.5)}, "length_penalty: 0.5 is not supported, allowed is 0 or 1: it has an effect with"),
        ({"len_penalty": f32(np.nan)}, "length_penalty: nan is not supported"),
        ({"early_stopping": NO}, "early_stopping: false is not supported, allowed is true"),
        ({"beam_search_diversity_rate": f32(0.5)}, "beam_search_diversity_rate: 0.5 is not supported"),
        (BEAMS | {"len_penalty": f32(np.nan)}, "length_penalty: nan is out of range"),
        (BEAMS | {"len_penalty": f32(11)}, r"length_penalty: 11.0 is out of range, allowed is \[-10.0, 10.0\]"),
        (BEAMS | {"beam_search_diversity_rate": f32(-1)}, "beam_search_diversity_rate: -1.0 is out of range"),
        (BEAMS | {"num_return_sequences": tensor([4])}, "num_return_sequences: 4 is out of range, allowed is"),
        (BEAMS | {"num_return_sequences": tensor([0])}, "num_return_sequences: 0 is out of range"),
        (BEAMS | {"stop_token_ids": tensor(list(range(40)))}, None),
        (BEAMS | {"streaming": YES}, "streaming: true is not supported with beam_width 3, allowed is false: which"),
        (BEAMS | {"temperature": f32(0.7)}, "temperature: 0.7 is not supported with beam_width 3, allowed is 0 or 1"),
        (BEAMS | {"temperature": f32(np.nan)}, "temperature: nan is not supported with beam_width 3"),
        (BEAMS | {"runtime_top_k": tensor([5])}, "top_k: 5 is not supported with beam_width 3, allowed is 0 or 1"),
        (BEAMS | {"runtime_top_p": f32(0.9)}, "top_p: 0.9 is not supported with beam_width 3, allowed is 0 or 1"),
        (BEAMS | {"min_p": f32(0.1)}, "min_p: 0.1 is not supported with beam_width 3, allowed is 0: beams are ranked"),
        (BEAMS | {"num_log_probs": tensor([2])}, "num_log_probs: 2 is not supported with beam_width 3"),
        (BEAMS | {"return_generation_logits": YES}, "return_generation_logits: true is not supported with beam_width"),
        (BEAMS | {GUIDE_TYPE: words("json")}, f"{GUIDE_TYPE}: is not supported with beam_width 3: the search does"),
        ({"runtime_top_p_decay": f32(0.9)}, "runtime_top_p_decay: 0.9 is not supported, allowed is 1: top_p stays"),
        ({"runtime_top_p_min": f32(0.1)}, "runtime_top_p_min: 0.1 is not supported"),
        ({"runtime_top_p_reset_ids": tensor([5])}, "runtime_top_p_reset_ids: 5 is not supported, allowed is -1"),
        ({"pad_id": tensor([100])}, r"pad_id: 100 is no token id, allowed is \[0, 99\]"),
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


def test_an_unknown_custom_parameter_is_refused_by_name_and_an_empty_one_means_none() -> None:
    parse('{"bad_words": "", "pad_id": 2}')
    with pytest.raises(InvalidRequest, match="^presence_penalty: no such input"):
        parse('{"presence_penalty": 1.0}')


@pytest.mark.parametrize(
    "custom", [{"a\nb": 1}, {"\x1b[2J": 1}, {"k" * 9999: 1}, {"tenant": "é" * 9999}, {"\ud800": 1}]
)
def test_a_name_or_value_of_a_clients_choosing_leaves_the_error_one_short_line(custom: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(json.dumps(custom))
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


def test_where_nothing_can_be_guided_a_guide_is_refused_with_the_reason() -> None:
    parser = dataclasses.replace(PARSER, no_guides="not on this device")
    for fields in ({GUIDE_TYPE: words("json")}, {GUIDE: words("a+")}):
        (name,) = fields
        inputs = {"input_ids": tensor([1]), "request_output_len": tensor([5])} | fields
        with pytest.raises(InvalidRequest, match=f"^{name}: is not supported: not on this device$"):
            parser.parse(Inputs(inputs, SHOWN_NAMES), "")


def test_where_logits_do_not_reach_the_host_what_needs_them_is_refused_with_the_reason() -> None:
    parser = dataclasses.replace(PARSER, beams=BeamLimits(8, "no searches here"), no_context_logits="nor these")
    tensors = {"input_ids": tensor([1]), "request_output_len": tensor([5])}
    with pytest.raises(InvalidRequest, match="^beam_width: 3 is not supported, allowed is 1: no searches here"):
        parser.parse(Inputs(tensors | BEAMS, SHOWN_NAMES), "")
    with pytest.raises(InvalidRequest, match="^return_context_logits: true is not supported: nor these"):
        parser.parse(Inputs(tensors | {"return_context_logits": YES}, SHOWN_NAMES), "")
    assert parser.parse(Inputs(tensors, SHOWN_NAMES), "").sampling.beams is None
