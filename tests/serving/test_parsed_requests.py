"""What a valid request is read as, and what the defaults are."""

import numpy as np
import pytest

from backend.errors import InvalidRequest
from backend.sampling_params import SamplingParams
from tests.serving.parsing import GUIDE, GUIDE_TYPE, NO, YES, bias, f32, parse, tensor, words


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


def test_stop_words_come_as_a_list_or_a_string_and_an_empty_one_is_none() -> None:
    assert parse(stop_words=words("")).stop_words == ()
    assert parse(stop_words=words("a", "", "b")).stop_words == ("a", "b")


def test_priority_comes_by_tensor_or_custom_parameter_and_the_tensor_wins() -> None:
    assert parse('{"request_priority": 1}').level == 1
    assert parse('{"request_priority": "3"}').level == 3
    assert parse('{"request_priority": 3}', priority=tensor([1])).level == 1
    assert parse(priority=tensor([0])).level == 2
    for bad in ("true", '"soon"', "1.5", f'"{"9" * 5000}"'):
        with pytest.raises(InvalidRequest, match="request_priority: .* is not an integer"):
            parse(f'{{"request_priority": {bad}}}')


def test_a_stream_never_repeats_the_prompt_and_a_whole_answer_does_unless_told_not_to() -> None:
    yes, no = tensor([True], np.bool_), tensor([False], np.bool_)
    assert parse().echo
    assert not parse(exclude_input_in_output=yes).echo
    assert not parse(streaming=yes, exclude_input_in_output=no).echo


def test_what_clients_send_by_habit_with_neutral_values_changes_nothing() -> None:
    habits = {
        "beam_width": tensor([1]),
        "len_penalty": f32(1.0),
        "early_stopping": YES,
        "beam_search_diversity_rate": f32(0.0),
        "runtime_top_p_decay": f32(1.0),
        "runtime_top_p_min": f32(0.0),
        "runtime_top_p_reset_ids": tensor([-1]),
        "repetition_penalty": f32(1.0),
        "presence_penalty": f32(0.0),
        "pad_id": tensor([2]),
        "return_context_logits": NO,
        "bad_words_list": tensor([[0], [-1]]),
        "num_log_probs": tensor([0]),
        "min_tokens": tensor([0]),
    }
    seed = {"seed": tensor([1], np.uint64)}
    assert parse(**habits, **seed).sampling == parse(**seed).sampling
    assert not parse(**habits).sampling.special


def test_each_field_of_sampling_arrives() -> None:
    sampling = parse(
        repetition_penalty=f32(1.5),
        presence_penalty=f32(0.5),
        frequency_penalty=f32(-0.25),
        min_length=tensor([4]),
        random_seed=tensor([2**63], np.uint64),
        bad_words_list=tensor([[5, 6, 7, 0], [1, 3, -1, -1]]),
        stop_words_list=tensor([[8, 9], [1, 2]]),
        num_log_probs=tensor([2]),
        return_generation_logits=YES,
    ).sampling
    assert (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (1.5, 0.5, -0.25)
    assert (sampling.min_tokens, sampling.seed) == (4, 2**63)
    assert (sampling.bad_words, sampling.stop_sequences) == (((5,), (6, 7)), ((8,), (9,)))
    assert (sampling.log_probs, sampling.top_log_probs, sampling.generation_logits) == (True, 2, True)
    assert sampling.special


def test_bias_comes_for_the_whole_vocabulary_or_for_chosen_ids_and_adds_up() -> None:
    whole = np.zeros((1, 100), np.float32)
    whole[0, [3, 99]] = 2.0, -1.5
    assert dict(parse(embedding_bias=whole).sampling.logit_bias) == {3: 2.0, 99: -1.5}
    assert dict(parse(embedding_bias=whole, **bias([3, 4, 4], [1, 1, 2])).sampling.logit_bias) == {
        3: 3.0,
        99: -1.5,
        4: 3.0,
    }
    assert not parse(embedding_bias=np.zeros((1, 100), np.float32)).sampling.logit_bias


def test_counts_and_measurements_are_given_as_asked() -> None:
    assert parse().left_out == frozenset()
    assert parse(return_num_input_tokens=NO, return_num_output_tokens=YES).left_out == {"num_input_tokens"}
    assert [parse(**{name: YES}).wants_metrics for name in ("return_perf_metrics", "return_kv_cache_reuse_stats")] == [
        True,
        True,
    ]
    assert not parse().wants_metrics


def test_parameters_of_sampling_hold_at_their_limits() -> None:
    SamplingParams(max_tokens=1, temperature=0.0, top_p=1.0, min_p=1.0, seed=2**64 - 1).validate(10)
    with pytest.raises(InvalidRequest, match="^top_p"):
        SamplingParams(max_tokens=1, top_p=0.0).validate(10)


def test_a_guide_is_text_with_a_kind_and_two_empty_strings_are_none() -> None:
    assert parse(**{GUIDE_TYPE: words("json")}).guide == ("json", "")
    assert parse(**{GUIDE_TYPE: words("regex"), GUIDE: words("a+")}).guide == ("regex", "a+")
    assert parse(**{GUIDE_TYPE: words(""), GUIDE: words("")}).guide is None
    assert parse().guide is None
