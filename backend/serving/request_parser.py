"""Tensors and custom parameters of inflight_batcher -> a validated Request. Nothing is allocated before it is valid."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from backend.errors import InvalidRequest, shown
from backend.sampling_params import SamplingParams
from backend.serving.beam_inputs import EARLY, NO_BEAMS, BeamLimits, beams_of
from backend.serving.guided_inputs import GuideText, guide_of
from backend.serving.inputs import Inputs, word_list
from backend.serving.neutral_inputs import refuse_what_has_no_effect
from backend.serving.sampling_inputs import sampling_of
from backend.serving.tracing.context import trace_context

SHOWN_NAMES = {
    "request_output_len": "max_tokens",
    "runtime_top_k": "top_k",
    "runtime_top_p": "top_p",
    "len_penalty": "length_penalty",
}
"""Engine tensor -> the ensemble's name of it, by which most clients know the field."""

MAX_STOP_WORDS = 32
MAX_SEQUENCES = 64
MAX_STOP_WORD_BYTES = 1024
_MOST_DIGITS = 9
MAX_LABEL_BYTES = 256
_WITHOUT_EFFECT = {"pad_id"}
"""Custom parameters that clients send by habit and that mean nothing here."""

_LEAVE_OUT_IF_FALSE = {
    "return_num_input_tokens": "num_input_tokens",
    "return_num_output_tokens": "num_output_tokens",
}
"""Flag -> the output that stands in every response unless the flag is given as false."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedRequest:
    """A valid request, not yet known to the engine. left_out: outputs that the client does not want.

    guide: to be compiled, and then put into ``sampling``. trace: the context that an entry passes on, "" for none.
    """

    prompt: tuple[int, ...]
    sampling: SamplingParams
    guide: GuideText | None
    level: int
    streaming: bool
    echo: bool
    wants_text: bool
    stop_words: tuple[str, ...]
    num_sequences: int
    tenant: str
    salt: str
    wants_metrics: bool
    left_out: frozenset[str]
    announce: bool
    pad_id: int = 0
    trace: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestParser:
    """What parsing needs to know of the model and the deployment. no_guides: why it cannot be guided, "" if it can.

    no_context_logits: why logits of prompts are not given; "" if they are.
    """

    vocab_size: int
    eos_ids: frozenset[int]
    priority_levels: int
    default_level: int
    echo_by_default: bool
    no_guides: str = ""
    beams: BeamLimits = NO_BEAMS
    no_context_logits: str = ""

    def parse(self, inputs: Inputs, parameters: str) -> ParsedRequest:
        """Raises InvalidRequest, naming field, value and limit. parameters: JSON object of custom parameters, or ""."""
        custom = checked_custom(json.loads(parameters) if parameters else {})
        streaming = inputs.boolean("streaming", False)
        beams = beams_of(inputs, custom, self.beams)
        refuse_what_has_no_effect(inputs, searches=beams is not None)
        sampling = sampling_of(inputs, self.eos_ids, self.vocab_size, beams)
        num_sequences = _num_sequences(inputs) if beams is None else 1
        sampling.validate_together(num_sequences, self.vocab_size)
        if sampling.context_logits and self.no_context_logits:
            raise InvalidRequest("return_context_logits", f"true is not supported: {self.no_context_logits}")
        prompt = self._prompt(inputs)
        sampling.validate_prompt(len(prompt), self.vocab_size)
        return ParsedRequest(
            prompt=prompt,
            sampling=sampling,
            guide=guide_of(inputs, self.no_guides),
            level=self._level(inputs, custom),
            streaming=streaming,
            echo=not streaming and not inputs.boolean("exclude_input_in_output", not self.echo_by_default),
            wants_text=inputs.boolean("detokenize", False),
            stop_words=_stop_words(inputs),
            num_sequences=num_sequences,
            tenant=_label(inputs, custom, "tenant"),
            salt=_label(inputs, custom, "cache_salt"),
            wants_metrics=inputs.boolean(inputs.either("return_perf_metrics", "return_kv_cache_reuse_stats"), False),
            left_out=frozenset(out for flag, out in _LEAVE_OUT_IF_FALSE.items() if not inputs.boolean(flag, True)),
            announce=inputs.boolean("announce", False),
            pad_id=self._pad_id(inputs, sampling),
            trace=trace_context(inputs),
        )

    def _pad_id(self, inputs: Inputs, sampling: SamplingParams) -> int:
        """What stands behind the shorter ones of several beams; only there anything is padded."""
        pad_id = inputs.integer("pad_id", min(sampling.end_ids, default=0))
        if not 0 <= pad_id < self.vocab_size:
            raise InvalidRequest("pad_id", f"{pad_id} is no token id, allowed is [0, {self.vocab_size - 1}]")
        return pad_id

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

    def _level(self, inputs: Inputs, custom: Mapping[str, int | str]) -> int:
        level = inputs.integer("priority", int(custom.get("request_priority", 0)))
        if not 0 <= level <= self.priority_levels:
            allowed = f"1 (most urgent) to {self.priority_levels}, or 0 for the default"
            raise InvalidRequest("priority", f"{level} is out of range, allowed is {allowed}")
        return level or self.default_level


def _as_level(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().isdecimal() and len(value) <= _MOST_DIGITS:
        return int(value)
    raise InvalidRequest(name, f"{shown(value)} is not an integer")


def _as_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(name, f"{shown(value)} is not a string")
    return value


def _as_given(name: str, value: object) -> int | str:
    if isinstance(value, int | str):
        return value
    raise InvalidRequest(name, f"{shown(value)} is neither an integer nor a string")


_CUSTOM: Mapping[str, Callable[[str, object], int | str]] = {
    "request_priority": _as_level,
    "tenant": _as_text,
    "cache_salt": _as_text,
    EARLY: _as_given,
}


def checked_custom(custom: Mapping[str, object]) -> dict[str, int | str]:
    """The custom parameters that have an effect here; others are refused, so that no typing error goes unnoticed."""
    for name, value in custom.items():
        known = name in _CUSTOM or name in _WITHOUT_EFFECT
        if not known and value not in ("", None):
            raise InvalidRequest(name, "no such input; the model's metadata lists all")
    return {name: read(name, custom[name]) for name, read in _CUSTOM.items() if name in custom}


def _label(inputs: Inputs, custom: Mapping[str, int | str], name: str) -> str:
    """A short text, by tensor or by custom parameter; "" when absent."""
    text = inputs.string(name) if name in inputs else str(custom.get(name, ""))
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
