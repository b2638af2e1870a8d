"""A valid request -> prompts and the ensemble's inputs, or a refusal that names OpenAI's field.

Whatever the running server has no input for is refused, unless it is asked for with the value that means nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.gateway.fields import ChatRequest, CommonFields, CompletionRequest, ResponseFormat
from backend.gateway.problems import refused
from backend.gateway.rendering import rendered
from backend.gateway.served_model import ServedModel
from backend.gateway.triton_wire import LOG_PROB_OUTPUTS, OUTPUTS, TOP_OUTPUTS

_PLAIN = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repetition_penalty",
    "min_tokens": "min_tokens",
    "ignore_eos": "ignore_eos",
    "priority": "priority",
    "cache_salt": "cache_salt",
    "n": "num_return_sequences",
}
"""Field -> the ensemble's input that means the same."""

_NEUTRAL: dict[str, object] = {
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_tokens": 0,
    "ignore_eos": False,
    "cache_salt": "",
    "n": 1,
}
"""Values that ask for nothing; they are not sent."""

_NAMES = {input_name: field for field, input_name in _PLAIN.items()} | {
    "max_tokens": "max_tokens",
    "stop_words": "stop",
    "seed": "seed",
    "embedding_bias": "logit_bias",
    "return_log_probs": "logprobs",
    "num_log_probs": "logprobs",
    "guided_decoding_guide_type": "response_format",
    "guided_decoding_guide": "response_format",
    "tenant": "user",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Headers:
    """What a request may say by headers; "" when absent."""

    priority: str = ""
    tenant: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What to ask of the server: one request per prompt, each with the same inputs.

    level: for the server's queue, 0 = its default; the engine's is among the inputs. names: the ensemble's input -> the
    client's field. open_ended: no limit was named, so that the answer may be as long as there is room. n: choices per
    prompt. echo: whether the prompt comes first. num_top: alternatives per token, None without log-probabilities.
    """

    prompts: tuple[str, ...]
    inputs: Mapping[str, Any]
    outputs: tuple[str, ...]
    level: int
    names: Mapping[str, str]
    open_ended: bool
    n: int
    echo: bool = False
    num_top: int | None = None


def chat(body: ChatRequest, headers: Headers, model: ServedModel, default_max_tokens: int) -> Ask:
    """Raises ApiError."""
    if body.top_logprobs is not None and not body.logprobs:
        raise refused("top_logprobs", "is allowed with logprobs only")
    if body.max_tokens is not None and body.max_completion_tokens not in (None, body.max_tokens):
        raise refused("max_tokens", "differs from max_completion_tokens, of which it is the older name")
    limit_field = "max_completion_tokens" if body.max_completion_tokens is not None else "max_tokens"
    limit = body.max_completion_tokens or body.max_tokens
    num_top = (body.top_logprobs or 0) if body.logprobs else None
    names = _NAMES | {
        "text_input": "messages",
        "input_ids": "messages",
        "max_tokens": limit_field,
        "num_log_probs": "top_logprobs",
    }
    return _ask(
        body,
        headers,
        model,
        prompts=(rendered(body, model),),
        inputs={"max_tokens": limit or default_max_tokens},
        names=names,
        open_ended=limit is None,
        num_top=num_top,
    )


def completion(body: CompletionRequest, headers: Headers, model: ServedModel) -> Ask:
    """Raises ApiError."""
    if body.best_of not in (None, body.n):
        raise refused("best_of", f"{body.best_of} differs from n; choosing among more answers is not supported")
    if body.echo and body.logprobs is not None:
        raise refused("echo", "is not supported with logprobs")
    return _ask(
        body,
        headers,
        model,
        prompts=(body.prompt,) if isinstance(body.prompt, str) else tuple(body.prompt),
        inputs={"max_tokens": body.max_tokens},
        names=_NAMES | {"text_input": "prompt", "input_ids": "prompt"},
        open_ended=False,
        num_top=body.logprobs,
        echo=body.echo,
    )


def _ask(
    body: CommonFields,
    headers: Headers,
    model: ServedModel,
    *,
    prompts: tuple[str, ...],
    inputs: dict[str, Any],
    names: dict[str, str],
    open_ended: bool,
    num_top: int | None,
    echo: bool = False,
) -> Ask:
    if body.stream_options is not None and not body.stream:
        raise refused("stream_options", "is allowed with stream only")
    if headers.tenant:
        names = names | {"tenant": "x-tenant"}
    level = _level(body, headers)
    if body.priority is None and headers.priority:
        names = names | {"priority": "x-priority"}
    inputs = inputs | _plain_inputs(body) | _word_inputs(body, headers) | ({"priority": level} if level else {})
    inputs |= _bias(body, model) | _guide(body.response_format) | _log_probs(num_top)
    outputs = OUTPUTS + (LOG_PROB_OUTPUTS if num_top is not None else ()) + (TOP_OUTPUTS if num_top else ())
    _check_served(inputs, outputs, model, names)
    return Ask(
        prompts=tuple(_sendable(names["text_input"], prompt) for prompt in prompts),
        inputs=inputs,
        outputs=outputs,
        level=max(level, 0),
        names=names,
        open_ended=open_ended,
        n=max(body.n, 1),
        echo=echo,
        num_top=num_top,
    )


def _plain_inputs(body: CommonFields) -> dict[str, Any]:
    given = {name: getattr(body, name) for name in _PLAIN if name != "priority"}
    wanted = {name: value for name, value in given.items() if value is not None and value != _NEUTRAL.get(name)}
    inputs: dict[str, Any] = {_PLAIN[name]: _encoded(name, value) for name, value in wanted.items()}
    if body.seed is not None:
        inputs["seed"] = body.seed % (1 << 64)
    return inputs


def _word_inputs(body: CommonFields, headers: Headers) -> dict[str, Any]:
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    tenant = headers.tenant or body.user
    inputs: dict[str, Any] = {"stop_words": [_encoded("stop", word) for word in stop]} if stop else {}
    return inputs | ({"tenant": _encoded("user", tenant)} if tenant else {})


def _level(body: CommonFields, headers: Headers) -> int:
    """The level asked for, in the body or by header; 0 for none. Whether there is such a level says the server."""
    if body.priority is not None or not headers.priority:
        return body.priority or 0
    text = headers.priority.strip()
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 10):
        raise refused("x-priority", "is not an integer")
    return int(text)


def _bias(body: CommonFields, model: ServedModel) -> dict[str, Any]:
    """The weights of the whole vocabulary: words would not do, as one may be written by several tokens."""
    if not body.logit_bias or "embedding_bias" not in model.tensors.inputs:
        return {"embedding_bias": []} if body.logit_bias else {}
    weights = [0.0] * model.vocab_size
    for key, weight in body.logit_bias.items():
        if not (key.isascii() and key.isdecimal() and len(key) < 10 and int(key) < len(weights)):
            raise refused("logit_bias", f"a key is no token id, allowed is [0, {len(weights) - 1}]")
        weights[int(key)] = weight
    return {"embedding_bias": weights}


def _guide(form: ResponseFormat | None) -> dict[str, Any]:
    if form is None or form.type == "text":
        return {}
    if form.type == "json_object":
        return {"guided_decoding_guide_type": b"json"}
    if form.json_schema is None:
        raise refused("response_format", "json_schema is required with this type")
    schema = json.dumps(form.json_schema.schema_, ensure_ascii=True).encode()
    return {"guided_decoding_guide_type": b"json_schema", "guided_decoding_guide": schema}


def _log_probs(num_top: int | None) -> dict[str, Any]:
    if num_top is None:
        return {}
    return {"return_log_probs": True} | ({"num_log_probs": num_top} if num_top else {})


def _check_served(
    inputs: Mapping[str, Any], outputs: Sequence[str], model: ServedModel, names: Mapping[str, str]
) -> None:
    """Refuse by name what the running server has no input or output for."""
    for name in inputs:
        if name not in model.tensors.inputs:
            raise refused(names.get(name, name), "the running server does not support it", "unsupported_parameter")
    if not model.tensors.outputs.issuperset(outputs):
        raise refused("logprobs", "the running server does not support it", "unsupported_parameter")


def _encoded(field: str, value: Any) -> Any:
    """Strings as UTF-8; anything else as it is."""
    return _sendable(field, value).encode() if isinstance(value, str) else value


def _sendable(field: str, text: str) -> str:
    """The text, if it can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise refused(field, "holds half a surrogate pair, which is no text") from None
    return text
