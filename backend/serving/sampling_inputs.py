"""Tensors of inflight_batcher -> SamplingParams."""

from __future__ import annotations

import dataclasses
import secrets

import numpy as np

from backend.beam_params import BeamParams
from backend.errors import InvalidRequest
from backend.logit_bias import LogitBias
from backend.sampling_params import MAX_BIAS, SamplingParams
from backend.serving.inputs import Inputs
from backend.serving.word_lists import words_of

_SAMPLES_IF_ANY = ("temperature", "runtime_top_k", "runtime_top_p", "min_p", "seed", "random_seed")
MAX_BIAS_IDS = 4096


def sampling_of(
    inputs: Inputs, eos_ids: frozenset[int], vocab_size: int, beams: BeamParams | None = None
) -> SamplingParams:
    """Valid parameters; raises InvalidRequest.

    Greedy unless any sampling field is given; then what is not given does not filter, at temperature 1. eos_ids: the
    model's own. beams: of a search, beside which nothing is drawn.
    """
    sampled = any(name in inputs for name in _SAMPLES_IF_ANY)
    seed, least = inputs.either("seed", "random_seed"), inputs.either("min_tokens", "min_length")
    num_top = inputs.integer("num_log_probs", 0)
    params = SamplingParams(
        max_tokens=inputs.integer("request_output_len"),
        temperature=inputs.real("temperature", 1.0 if sampled else 0.0),
        top_k=inputs.integer("runtime_top_k", 0),
        # TensorRT-LLM's clients send 0 for "not set".
        top_p=inputs.real("runtime_top_p", 1.0) or 1.0,
        min_p=inputs.real("min_p", 0.0),
        seed=inputs.integer(seed) if seed in inputs else secrets.randbits(64),
        end_ids=_end_ids(inputs, eos_ids),
        stop_ids=frozenset(inputs.ids("stop_token_ids")) if "stop_token_ids" in inputs else frozenset(),
        stop_sequences=words_of(inputs, "stop_words_list"),
        repetition_penalty=inputs.real("repetition_penalty", 1.0),
        presence_penalty=inputs.real("presence_penalty", 0.0),
        frequency_penalty=inputs.real("frequency_penalty", 0.0),
        logit_bias=_logit_bias(inputs, vocab_size),
        bad_words=words_of(inputs, "bad_words_list"),
        min_tokens=inputs.integer(least, 0),
        log_probs=inputs.boolean("return_log_probs", False) or num_top > 0,
        top_log_probs=num_top,
        generation_logits=inputs.boolean("return_generation_logits", False),
        context_logits=inputs.boolean("return_context_logits", False),
    )
    if beams is not None:
        params = dataclasses.replace(params, beams=beams, temperature=0.0, top_k=0, top_p=1.0)
    params.validate(vocab_size)
    return params


def _end_ids(inputs: Inputs, eos_ids: frozenset[int]) -> frozenset[int]:
    """The model's own ids, or the one given in their place; none with ``ignore_eos``."""
    if inputs.boolean("ignore_eos", False):
        return frozenset()
    return frozenset({inputs.integer("end_id")}) if "end_id" in inputs else eos_ids


def _logit_bias(inputs: Inputs, vocab_size: int) -> LogitBias:
    """Of the whole vocabulary, or of chosen ids; where both are given they add up."""
    whole, chosen = _whole_bias(inputs, vocab_size), _chosen_bias(inputs)
    return LogitBias.of([*whole, *chosen]) if whole and chosen else whole or chosen


def _whole_bias(inputs: Inputs, vocab_size: int) -> LogitBias:
    name = "embedding_bias"
    if name not in inputs:
        return LogitBias()
    weights = inputs.array(name).reshape(-1)
    if weights.size != vocab_size:
        raise InvalidRequest(name, f"{weights.size} elements, the vocabulary has {vocab_size}")
    wrong = ~(np.abs(weights) <= MAX_BIAS)
    if wrong.any():
        at = int(wrong.argmax())
        raise InvalidRequest(name, f"{weights[at]} for id {at} is out of range, allowed is [{-MAX_BIAS}, {MAX_BIAS}]")
    (ids,) = weights.nonzero()
    return LogitBias(ids.astype(np.int32).tobytes(), weights[ids].astype(np.float32).tobytes())


def _chosen_bias(inputs: Inputs) -> LogitBias:
    if "logit_bias_ids" not in inputs and "logit_bias_weights" not in inputs:
        return LogitBias()
    for name, other in (("logit_bias_ids", "logit_bias_weights"), ("logit_bias_weights", "logit_bias_ids")):
        if name not in inputs:
            raise InvalidRequest(name, f"is required with {other}")
    ids, weights = inputs.ids("logit_bias_ids"), inputs.array("logit_bias_weights").reshape(-1).tolist()
    if len(ids) != len(weights):
        raise InvalidRequest("logit_bias_weights", f"{len(weights)} elements, logit_bias_ids has {len(ids)}")
    if len(ids) > MAX_BIAS_IDS:
        raise InvalidRequest("logit_bias_ids", f"{len(ids)} ids, at most {MAX_BIAS_IDS} are allowed")
    return LogitBias.of(zip(ids, weights, strict=True))
