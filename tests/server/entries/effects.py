"""For every input that an entry declares: how to ask so that it must change the answer, or why it has no such request.

An input that is in none of these tables fails a test, so a new one cannot be forgotten.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from backend.serving.entries.refusals import UNSERVED
from backend.serving.entries.retention import NAMES as RETENTION
from backend.serving.neutral_inputs import _NEUTRAL
from tests.server.entries.client import FRANCE, ONCE, Fields, token_request

PARIS, CAPITAL, PROMPT_IDS = 7042, 3575, (504, 3575, 282, 4649, 314)
"""The tokens of " Paris", of " capital", and of FRANCE, by SmolLM2's tokenizer."""
VOCABULARY = 49152
TOKENS = 9
BASES: dict[str, Fields] = {
    "ensemble": {"text_input": FRANCE, "max_tokens": TOKENS},
    "tensorrt_llm_bls": {"text_input": FRANCE, "max_tokens": TOKENS},
    "ensemble_uint32": {"text_input": FRANCE, "max_tokens": TOKENS},
    "tensorrt_llm": token_request(list(PROMPT_IDS), TOKENS),
    "inflight_batcher": token_request(list(PROMPT_IDS), TOKENS),
    "vllm_model": {"text_input": FRANCE, "sampling_parameters": '{"temperature": 0, "max_tokens": 9}'},
    "llmapi": {"text_input": FRANCE, "sampling_param_max_tokens": TOKENS},
}
"""A greedy request to each entry."""


class Effect(NamedTuple):
    """The base with ``also`` is answered otherwise than the base with ``also`` and then ``value``."""

    value: Any
    also: Fields | None = None


def _bias() -> Any:
    weights = np.zeros(VOCABULARY, np.float32)
    weights[100] = 1000.0
    return weights


_HOT: Fields = {"temperature": 2.0, "seed": 5}
_HOT_OLD: Fields = {"temperature": 2.0, "random_seed": 5}
_ENDS: Fields = {"end_id": PARIS}
_GUIDE: Fields = {"guided_decoding_guide_type": "regex", "guided_decoding_guide": " Rome"}
_LONG: Fields = {
    "return_perf_metrics": True,
    "text_input": "river " * 40,
    "input_ids": list(range(100, 140)),
    "input_lengths": 40,
}
"""Longer than a block, so that some of it is found again."""
_LLMAPI_HOT: Fields = {"sampling_param_temperature": 2.0, "sampling_param_seed": 5}

EFFECTS: dict[str, Effect] = {
    "text_input": Effect(ONCE),
    "max_tokens": Effect(5),
    "request_output_len": Effect(5),
    "input_ids": Effect([504, 3575, 282, 4649, 315]),
    "input_lengths": Effect(4),
    "stream": Effect(True),
    "streaming": Effect(True),
    "temperature": Effect(2.0, {"seed": 5}),
    "top_k": Effect(2, _HOT),
    "top_p": Effect(0.2, _HOT),
    "runtime_top_k": Effect(2, _HOT),
    "runtime_top_p": Effect(0.2, _HOT),
    "min_p": Effect(0.5, _HOT),
    "seed": Effect(6, _HOT),
    "random_seed": Effect(6, _HOT_OLD),
    "stop_words": Effect(["."]),
    "end_id": Effect(PARIS),
    "num_return_sequences": Effect(2),
    "ignore_eos": Effect(True, _ENDS),
    "exclude_input_in_output": Effect(True),
    "repetition_penalty": Effect(50.0),
    "presence_penalty": Effect(90.0),
    "frequency_penalty": Effect(90.0),
    "min_tokens": Effect(4, _ENDS),
    "min_length": Effect(4, _ENDS),
    "bad_words": Effect(["Paris"]),
    "embedding_bias": Effect(_bias()),
    "embedding_bias_words": Effect(["London"], {"embedding_bias_words": ["Rome"], "embedding_bias_weights": [60.0]}),
    "embedding_bias_weights": Effect([60.0], {"embedding_bias_words": ["Rome"], "embedding_bias_weights": [0.0]}),
    "logit_bias_ids": Effect([101], {"logit_bias_ids": [100], "logit_bias_weights": [1000.0]}),
    "logit_bias_weights": Effect([1000.0], {"logit_bias_ids": [100], "logit_bias_weights": [0.0]}),
    "stop_words_list": Effect([[PARIS], [1]]),
    "bad_words_list": Effect([[PARIS], [1]]),
    "stop_token_ids": Effect([PARIS]),
    "return_log_probs": Effect(True),
    "num_log_probs": Effect(2),
    "return_generation_logits": Effect(True),
    "return_perf_metrics": Effect(True),
    "return_kv_cache_reuse_stats": Effect(True),
    "return_num_input_tokens": Effect(False),
    "return_num_output_tokens": Effect(False),
    "guided_decoding_guide_type": Effect("json"),
    "guided_decoding_guide": Effect(" Lyon", _GUIDE),
    "cache_salt": Effect("another", _LONG),
    "detokenize": Effect(True),
    "announce": Effect(True),
    "sampling_parameters": Effect('{"temperature": 0, "max_tokens": 5}'),
    "return_finish_reason": Effect(True),
    "return_stop_reason": Effect(True),
    "return_cumulative_logprob": Effect(True),
    "return_logprobs": Effect(True),
    "sampling_param_max_tokens": Effect(5),
    "sampling_param_temperature": Effect(2.0, {"sampling_param_seed": 5}),
    "sampling_param_top_k": Effect(2, _LLMAPI_HOT),
    "sampling_param_top_p": Effect(0.2, _LLMAPI_HOT),
    "sampling_param_seed": Effect(6, _LLMAPI_HOT),
    "sampling_param_frequency_penalty": Effect(90.0),
    "sampling_param_presence_penalty": Effect(90.0),
    "sampling_param_stop": Effect(["."]),
    "sampling_param_exclude_input_from_output": Effect(True),
    "sampling_param_return_perf_metrics": Effect(True),
    # A search over beams, where the engine has it.
    "beam_width": Effect(3),
    # Beams of one length are divided by the same; after " capital", three soon end that are not the best there are.
    "len_penalty": Effect(5.0, {"beam_width": 3, "end_id": PARIS}),
    "length_penalty": Effect(5.0, {"beam_width": 3, "end_id": PARIS}),
    "early_stopping": Effect(False, {"beam_width": 3, "len_penalty": 1.0, "end_id": CAPITAL}),
    "beam_search_diversity_rate": Effect(5.0, {"beam_width": 3}),
    "return_context_logits": Effect(True),
}
OF_MODEL: dict[tuple[str, str], Effect] = {
    ("vllm_model", "return_num_input_tokens"): Effect(True),
    ("vllm_model", "return_num_output_tokens"): Effect(True),
    ("ensemble_uint32", "top_k"): Effect(2, _HOT_OLD),
    ("ensemble_uint32", "top_p"): Effect(0.2, _HOT_OLD),
    ("ensemble_uint32", "temperature"): Effect(2.0, {"random_seed": 5}),
    ("ensemble_uint32", "length_penalty"): Effect(5.0, {"beam_width": 3, "stop_words": ["."]}),
}
"""Where an entry wants another request than the others."""

_SAYING_SOMETHING = {"early_stopping": False, "return_context_logits": True}
REFUSED: dict[str, Any] = {name: _SAYING_SOMETHING.get(name, 7) for name in (*UNSERVED, *_NEUTRAL)} | {
    **dict.fromkeys(RETENTION, 50),
    **({"length_penalty": 7} if "len_penalty" in _NEUTRAL else {}),
    "sampling_param_best_of": 7,
}
"""Inputs that are not served -> a value that says something, which is refused by the input's name."""
STOP_ONLY = {("ensemble_uint32", name) for name in ("input_ids", "input_lengths", "request_output_len")}
"""Taken beside ``stop`` and refused otherwise."""
NO_EFFECT = {"pad_id": 2}
"""What the documents say has none."""
ELSEWHERE = {
    "stop": "server/entries/test_leaving.py::test_a_stop_with_the_same_request_id_ends_the_request",
    "priority": "server/ensemble/test_refusals.py::"
    "test_the_priority_reaches_the_engine_by_tensor_and_by_parameter_through_the_ensemble",
    "tenant": "scheduler/test_fair_share.py::test_a_tenant_with_one_request_does_not_stand_behind_anothers_flood",
    "engine_key": "serving/test_open_requests.py::test_a_key_stops_its_request_alone_and_the_engines_number_stops_none",
    "trace_context": "serving/tracing/test_spans.py::test_the_servers_context_is_the_parent_or_else_the_one_that_came",
}
"""Inputs that change when, or what is told to others, but no answer: the tests in which they do."""


def served(model: str, name: str) -> bool:
    """Whether the input is to change the answer of this entry."""
    return name not in REFUSED and name not in NO_EFFECT and name not in ELSEWHERE and (model, name) not in STOP_ONLY
