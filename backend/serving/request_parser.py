"""Tensors and custom parameters of inflight_batcher -> a validated Request. Nothing is allocated before it is valid."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from backend.errors import InvalidRequest
from backend.sampling_params import SamplingParams
from backend.serving.inputs import Inputs, word_list

SHOWN_NAMES = {
    "request_output_len": "max_tokens",
    "runtime_top_k": "top_k",
    "runtime_top_p": "top_p",
}
"""Engine tensor -> the ensemble's name of it, by which most clients know the field."""

MAX_STOP_WORDS = 32
MAX_SEQUENCES = 64
MAX_STOP_WORD_BYTES = 1024
_SAMPLES_IF_ANY = ("temperature", "runtime_top_k", "runtime_top_p", "min_p", "seed")
_CUSTOM = {"request_priority", "tenant", "cache_salt"}
MAX_LABEL_BYTES = 256
_WITHOUT_EFFECT = {"pad_id"}
"""Custom parameters that clients send by habit and that mean nothing here: batches are not padded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedRequest:
    """A valid request, not yet known to the engine."""

    prompt: tuple[int, ...]
    sampling: SamplingParams
    level: int
    streaming: bool
    echo: bool
    wants_text: bool
    stop_words: tuple[str, ...]
    num_sequences: int
    tenant: str
    salt: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestParser:
    """What parsing needs to know of the model and the deployment."""

    vocab_size: int
    eos_ids: frozenset[int]
    priority_levels: int
    default_level: int
    echo_by_default: bool

    def parse(self, inputs: Inputs, parameters: str) -> ParsedRequest:
        """Raises InvalidRequest, naming field, value and limit. parameters: JSON object of custom parameters, or ""."""
        custom = _custom_parameters(parameters)
        streaming = inputs.boolean("streaming", False)
        sampling = self._sampling(inputs)
        sampling.validate(self.vocab_size)
        return ParsedRequest(
            prompt=self._prompt(inputs),
            sampling=sampling,
            level=self._level(inputs, custom),
            streaming=streaming,
            echo=not streaming and not inputs.boolean("exclude_input_in_output", not self.echo_by_default),
            wants_text=inputs.boolean("detokenize", False),
            stop_words=_stop_words(inputs),
            num_sequences=_num_sequences(inputs),
            tenant=_label(inputs, custom, "tenant"),
            salt=_label(inputs, custom, "cache_salt"),
        )

    def _prompt(self, inputs: Inputs) -> tuple[int, ...]:
        ids = inputs.ids("input_ids")
        length = inputs.integer("input_lengths", len(ids))
        if length != len(ids):
            raise InvalidRequest("input_lengths", f"{length}, but input_ids holds {len(ids)}")
        if not ids:
            raise InvalidRequest("input_ids", "the prompt is empty, at least 1 token is needed")
        low, high = min(ids), max(ids)
        if low < 0 or high >= self.vocab_size:
            wrong = low if low < 0 else high
            raise InvalidRequest("input_ids", f"{wrong} is no token id, allowed is [0, {self.vocab_size - 1}]")
        return ids

    def _sampling(self, inputs: Inputs) -> SamplingParams:
        """Greedy unless any sampling field is given; then what is not given does not filter, at temperature 1."""
        sampled = any(name in inputs for name in _SAMPLES_IF_ANY)
        return SamplingParams(
            max_tokens=inputs.integer("request_output_len"),
            temperature=inputs.real("temperature", 1.0 if sampled else 0.0),
            top_k=inputs.integer("runtime_top_k", 0),
            # TensorRT-LLM's clients send 0 for "not set".
            top_p=inputs.real("runtime_top_p", 1.0) or 1.0,
            min_p=inputs.real("min_p", 0.0),
            seed=inputs.integer("seed") if "seed" in inputs else secrets.randbits(64),
            end_ids=self._end_ids(inputs),
            stop_ids=frozenset(inputs.ids("stop_token_ids")) if "stop_token_ids" in inputs else frozenset(),
        )

    def _end_ids(self, inputs: Inputs) -> frozenset[int]:
        """The model's own ids, or the one given in their place; none with ``ignore_eos``."""
        if inputs.boolean("ignore_eos", False):
            return frozenset()
        return frozenset({inputs.integer("end_id")}) if "end_id" in inputs else self.eos_ids

    def _level(self, inputs: Inputs, custom: Mapping[str, object]) -> int:
        level = inputs.integer("priority", 0)
        if "priority" not in inputs and "request_priority" in custom:
            level = _as_level(custom["request_priority"])
        if not 0 <= level <= self.priority_levels:
            allowed = f"1 (most urgent) to {self.priority_levels}, or 0 for the default"
            raise InvalidRequest("priority", f"{level} is out of range, allowed is {allowed}")
        return level or self.default_level


def _as_level(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    raise InvalidRequest("request_priority", f"{value!r} is not an integer")


def _custom_parameters(text: str) -> Mapping[str, object]:
    """Custom parameters of the request; one without an effect is refused, so that no typing error goes unnoticed."""
    custom: dict[str, object] = json.loads(text) if text else {}
    for name, value in custom.items():
        known = name in _CUSTOM or name in _WITHOUT_EFFECT
        if not known and value not in ("", None):
            raise InvalidRequest(name, "no such input; the model's metadata lists all")
    return custom


def _label(inputs: Inputs, custom: Mapping[str, object], name: str) -> str:
    """A short text, by tensor or by custom parameter; "" when absent."""
    text = inputs.string(name) if name in inputs else custom.get(name, "")
    if not isinstance(text, str):
        raise InvalidRequest(name, f"{text!r} is not a string")
    if len(text.encode()) > MAX_LABEL_BYTES:
        raise InvalidRequest(name, f"{len(text.encode())} bytes, at most {MAX_LABEL_BYTES} are allowed")
    return text


def _num_sequences(inputs: Inputs) -> int:
    count = inputs.integer("num_return_sequences", 1)
    if not 1 <= count <= MAX_SEQUENCES:
        raise InvalidRequest("num_return_sequences", f"{count} is out of range, allowed is [1, {MAX_SEQUENCES}]")
    return count


def _stop_words(inputs: Inputs) -> tuple[str, ...]:
    words = word_list(inputs.strings("stop_words"))
    if len(words) > MAX_STOP_WORDS:
        raise InvalidRequest("stop_words", f"{len(words)} words, at most {MAX_STOP_WORDS} are allowed")
    for word in words:
        if len(word.encode()) > MAX_STOP_WORD_BYTES:
            raise InvalidRequest("stop_words", f"{len(word.encode())} bytes, at most {MAX_STOP_WORD_BYTES} are allowed")
    return tuple(words)
