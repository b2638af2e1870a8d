"""vLLM's sampling parameters, as JSON, -> the engine's inputs. Its keys, its defaults, its meaning of each.

Unknown keys are refused by name, as vLLM does; known ones that nothing here serves are refused unless their value
means the same as none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from backend.errors import InvalidRequest
from backend.serving.entries import vllm_guides
from backend.serving.entries.json_values import (
    as_bool,
    as_float,
    as_int,
    as_ints,
    as_strings,
    as_weights,
    parsed,
    within,
)
from backend.serving.request_parser import MAX_SEQUENCES

DEFAULT_MAX_TOKENS = 16
DEFAULT_TEMPERATURE = 1.0
_INT32 = (-(1 << 31), (1 << 31) - 1)
_MAX_SEED = (1 << 64) - 1


@dataclass(kw_only=True)
class VllmParameters:
    """engine: inputs by name. num_sequences: ``n``. logprobs: how many beside the sampled one, None for none at all."""

    engine: dict[str, object]
    num_sequences: int = 1
    bad_words: list[bytes] = field(default_factory=list)
    logprobs: int | None = None


class Unserved(NamedTuple):
    """neutral: values, beside null, that change nothing here."""

    why: str
    neutral: tuple[object, ...] = ()


_NO_BEAMS = "this entry searches no beams; ensemble and tensorrt_llm do, with beam_width"
_SPECIAL = "special tokens never show in text"
UNSERVED: Mapping[str, Unserved] = {
    "best_of": Unserved("there is no search over several answers", (1, "1")),
    "use_beam_search": Unserved(_NO_BEAMS, (False, "false", "False")),
    "length_penalty": Unserved(_NO_BEAMS, (1.0, "1.0", "1")),
    "early_stopping": Unserved(_NO_BEAMS, (False, "false", "False")),
    "prompt_logprobs": Unserved("log-probabilities of the prompt are not given"),
    "allowed_token_ids": Unserved("use logit_bias"),
    "lora_name": Unserved("LoRA adapters are not served", ("",)),
    "truncate_prompt_tokens": Unserved("prompts are never cut"),
    "include_stop_str_in_output": Unserved("the text ends before a stop string", (False, "false", "False")),
    "skip_special_tokens": Unserved(_SPECIAL, (True, "true", "True")),
    "spaces_between_special_tokens": Unserved(_SPECIAL, (True, False, "true", "false", "True", "False")),
    "detokenize": Unserved("this entry gives text", (True, "true", "True")),
    "logits_processors": Unserved("logits processors are not served", ([],)),
    "extra_args": Unserved("there is nothing that reads them", ({},)),
    "flat_logprobs": Unserved("log-probabilities come as one object per token", (False, "false", "False")),
    "output_kind": Unserved("the entry chooses it by stream"),
}

_Read = Callable[[str, object], object]


def _int32(key: str, value: object) -> int:
    return within(key, as_int(key, value), *_INT32)


def _top_k(key: str, value: object) -> int:
    """-1 is vLLM's old value for all, 0 its new one."""
    top_k = _int32(key, value)
    return 0 if top_k == -1 else top_k


def _bytes(key: str, value: object) -> list[bytes]:
    return [_utf8(key, each) for each in as_strings(key, value)]


def _text(key: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise InvalidRequest(key, "is not a string")
    return _utf8(key, value)


def _utf8(key: str, text: str) -> bytes:
    """JSON can write half of a surrogate pair, which is no character."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(key, f"not valid Unicode at character {error.start}") from error


_FIELDS: Mapping[str, tuple[str, _Read]] = {
    "max_tokens": ("request_output_len", _int32),
    "min_tokens": ("min_tokens", _int32),
    "temperature": ("temperature", as_float),
    "top_k": ("runtime_top_k", _top_k),
    "top_p": ("runtime_top_p", as_float),
    "min_p": ("min_p", as_float),
    "repetition_penalty": ("repetition_penalty", as_float),
    "presence_penalty": ("presence_penalty", as_float),
    "frequency_penalty": ("frequency_penalty", as_float),
    "ignore_eos": ("ignore_eos", as_bool),
    "stop": ("stop_words", _bytes),
    "stop_token_ids": ("stop_token_ids", lambda key, value: [_int32(key, each) for each in as_ints(key, value)]),
    "priority": ("priority", _int32),
    "request_priority": ("priority", _int32),
    "tenant": ("tenant", _text),
    "cache_salt": ("cache_salt", _text),
}
_NONE_IF = {
    "min_tokens": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "stop_words": [],
    "stop_token_ids": [],
}
_OWN = ("n", "seed", "bad_words", "logit_bias", "logprobs", *vllm_guides.KEYS)
KNOWN = frozenset({*_FIELDS, *_OWN, *UNSERVED})


def parameters_of(text: str, beside: Mapping[str, object]) -> VllmParameters:
    """From the tensor ``sampling_parameters``, if that is not "", and the request's custom parameters.

    Some clients say in the latter what they say in the former; what contradicts it is refused. Raises InvalidRequest.
    """
    values = _object(text) if text else {}
    for key in beside.keys() & values.keys():
        if str(beside[key]) != str(values[key]):
            raise InvalidRequest(key, "differs between sampling_parameters and the request's parameters")
    return _read({**beside, **values})


def _object(text: str) -> dict[str, object]:
    values = parsed("sampling_parameters", text)
    if not isinstance(values, dict):
        raise InvalidRequest("sampling_parameters", "is not a JSON object")
    return values


def _read(values: Mapping[str, object]) -> VllmParameters:
    given = {key: value for key, value in values.items() if value is not None}
    for key in given:
        if key not in KNOWN:
            raise InvalidRequest(key, "no such sampling parameter")
    for key, unserved in UNSERVED.items():
        if key in given and not any(_same(given[key], neutral) for neutral in unserved.neutral):
            raise InvalidRequest(key, f"is not supported: {unserved.why}")
    engine: dict[str, object] = {"request_output_len": DEFAULT_MAX_TOKENS, "temperature": DEFAULT_TEMPERATURE}
    for key, (name, read) in _FIELDS.items():
        if key in given:
            engine[name] = read(key, given[key])
    engine = {name: value for name, value in engine.items() if name not in _NONE_IF or value != _NONE_IF[name]}
    parameters = VllmParameters(engine=engine)
    _read_own(parameters, given)
    return parameters


def _same(value: object, neutral: object) -> bool:
    return isinstance(value, bool) == isinstance(neutral, bool) and value == neutral


def _read_own(parameters: VllmParameters, given: Mapping[str, object]) -> None:
    engine = parameters.engine
    if "n" in given:
        parameters.num_sequences = within("n", as_int("n", given["n"]), 1, MAX_SEQUENCES)
    if "seed" in given and (seed := as_int("seed", given["seed"])) != -1:
        engine["seed"] = within("seed", seed, 0, _MAX_SEED)
    if "bad_words" in given:
        parameters.bad_words = _bytes("bad_words", given["bad_words"])
    if "logit_bias" in given and (bias := as_weights("logit_bias", given["logit_bias"])):
        engine["logit_bias_ids"] = [within("logit_bias", token, *_INT32) for token in bias]
        engine["logit_bias_weights"] = list(bias.values())
    for key in vllm_guides.KEYS:
        if key in given and (guide := vllm_guides.guide_inputs(key, given[key])):
            if guide.keys() & engine.keys():
                raise InvalidRequest(key, f"is another name of {vllm_guides.KEYS[0]}, only one may be given")
            engine |= guide
    if "logprobs" in given:
        count = within("logprobs", as_int("logprobs", given["logprobs"]), 0, _INT32[1])
        parameters.logprobs = count
        engine["return_log_probs"] = True
        if count:
            engine["num_log_probs"] = count
