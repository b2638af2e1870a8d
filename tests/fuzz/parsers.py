"""Harnesses for the parsers of what a client or an operator wrote: bytes in, and nothing but a clear refusal out.

Each takes any bytes and raises only where the parser breaks its word. They know nothing of who makes the bytes:
atheris, guided by coverage, or hypothesis.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from backend.checkpoint.default_model import ensure
from backend.checkpoint.errors import CheckpointError
from backend.checkpoint.gguf_file import GgufFile
from backend.errors import InvalidRequest
from backend.gateway import translation
from backend.gateway.fields import ChatRequest, CompletionRequest
from backend.gateway.problems import ApiError
from backend.gateway.served_model import ServedModel
from backend.gateway.triton_client import Tensors
from backend.gateway.validation import explain
from backend.serving.entries.vllm_parameters import parameters_of
from backend.serving.guided_inputs import MAX_EBNF_BYTES, MAX_GUIDE_BYTES
from backend.serving.inputs import Inputs
from backend.serving.request_parser import RequestParser
from backend.serving.word_lists import as_rows, words_of
from backend.text import chat_template
from backend.text.guided_decoding import GUIDE_TYPES, GuideCompiler
from scripts.interface_table.configs import models
from tests.fuzz import texts
from tests.fuzz.judge import problems_of_error

MODELS = Path(__file__).resolve().parents[2] / ".cache" / "models"
EOS = 2
PARSER = RequestParser(
    vocab_size=100, eos_ids=frozenset({EOS}), priority_levels=3, default_level=2, echo_by_default=True
)
Harness = Callable[[bytes], None]


def _clear(message: str) -> None:
    problems = problems_of_error(message)
    assert not problems, problems


def sampling_parameters(data: bytes) -> None:
    """vLLM's, as the tensor's text."""
    text = data.decode("utf-8", "replace")
    try:
        read = parameters_of(text, {})
    except InvalidRequest as error:
        _clear(str(error))
        return
    for name, value in read.engine.items():
        assert value is not None, name


def custom_parameters(data: bytes) -> None:
    """Names and values that the server hands over as a JSON object of scalars."""
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(given, dict):
        return
    scalars = {name: value for name, value in given.items() if isinstance(value, str | int | float | bool)}
    inputs = {"input_ids": np.array([[1, 2]], np.int32), "request_output_len": np.array([[5]], np.int32)}
    try:
        parsed = PARSER.parse(Inputs(inputs), json.dumps(scalars))
        assert 1 <= parsed.level <= 3
        assert max(len(parsed.tenant.encode()), len(parsed.salt.encode())) <= 256
    except InvalidRequest as error:
        _clear(str(error))


def word_list(data: bytes) -> None:
    """[2, N] in the numbers of the bytes; what is read is what is written again."""
    rows = np.frombuffer(data[: len(data) // 8 * 8], np.int32).reshape(1, 2, -1)
    name = "bad_words_list"
    try:
        words = words_of(Inputs({name: rows}), name)
    except InvalidRequest as error:
        _clear(str(error))
        return
    assert words_of(Inputs({name: as_rows(words)[None]}), name) == words
    try:
        PARSER.parse(Inputs({name: rows, "input_ids": np.array([[1]]), "request_output_len": np.array([[5]])}), "")
        assert all(0 <= token < PARSER.vocab_size for word in words for token in word)
    except InvalidRequest as error:
        _clear(str(error))


@functools.cache
def _compiler() -> GuideCompiler:
    return GuideCompiler(ensure("smollm2", MODELS), 49152, [EOS])


def guide(data: bytes) -> None:
    """The first byte is the guide's type, the rest its text; a guide that is taken allows a token, or may end."""
    kind = GUIDE_TYPES[data[0] % len(GUIDE_TYPES)] if data else "json"
    text = data[1 : MAX_EBNF_BYTES if kind == "ebnf_grammar" else MAX_GUIDE_BYTES].decode("utf-8", "replace")
    try:
        state = _compiler().compile(kind, text).start([])
    except InvalidRequest as error:
        _clear(str(error))
        return
    allowed = state.allowed()
    assert allowed is None or any(allowed) or state.may_end()


@functools.cache
def _served() -> ServedModel:
    place = ensure("smollm2", MODELS)
    ensemble = models()["ensemble"]
    tensors = Tensors(
        frozenset(each.name for each in ensemble.inputs), frozenset(each.name for each in ensemble.outputs)
    )
    return ServedModel("m", 0, tensors, chat_template.find(place), place)


def _openai(kind: Any, translate: Callable[[Any], translation.Ask], data: bytes) -> None:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return  # the framework's own answer
    try:
        try:
            asked = translate(kind.model_validate(body))
        except ValidationError as error:
            raise explain([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from None
        assert all(prompt.encode() is not None for prompt in asked.prompts)
    except ApiError as error:
        assert 400 <= error.status < 500
        json.dumps(error.body(), ensure_ascii=False).encode()
        _clear(error.message)


def chat_body(data: bytes) -> None:
    """A body of /v1/chat/completions."""
    _openai(ChatRequest, lambda body: translation.chat(body, translation.Headers(), _served(), 16), data)


def completion_body(data: bytes) -> None:
    """A body of /v1/completions."""
    _openai(CompletionRequest, lambda body: translation.completion(body, translation.Headers(), _served()), data)


def gguf(data: bytes) -> None:
    """A GGUF file: whole, or said not to be."""
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(data)
        file.flush()
        try:
            read = GgufFile(Path(file.name))
        except CheckpointError as error:
            assert len(str(error).splitlines()) == 1
            return
        for tensor in read.tensors.values():
            assert tensor.data.nbytes <= len(data)


PARSERS: Mapping[str, Harness] = {
    harness.__name__: harness
    for harness in (
        sampling_parameters, custom_parameters, word_list, guide, chat_body, completion_body, gguf,
    )
}  # fmt: skip


def samples(name: str) -> Iterable[bytes]:
    """Well-formed inputs to begin with."""
    return _SAMPLES[name]()


def _sampling_samples() -> list[bytes]:
    return [
        b'{"max_tokens": "5", "temperature": 0.5, "stop": ["a"], "seed": 7, "n": 2, "logit_bias": {"9": 1.5}}',
        b'{"structured_outputs": {"json": {"type": "object"}}, "logprobs": 2, "bad_words": ["x"]}',
        b'{"guided_decoding": "{\\"regex\\": \\"a+\\"}", "ignore_eos": true, "stop_token_ids": [3], "top_k": -1}',
    ]


def _chat_samples() -> list[bytes]:
    one = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "stop": ["a"]}
    two = {
        "model": "m",
        "messages": [{"role": "system", "content": [{"type": "text", "text": "x"}]}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
        "logprobs": True,
        "top_logprobs": 2,
        "logit_bias": {"5": 1},
        "max_completion_tokens": 3,
    }
    three = one | {"a\nb\x1b": 1}
    return [json.dumps(each).encode() for each in (one, two, three)]


def _gguf_samples() -> list[bytes]:
    import gguf as library

    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "a.gguf")
        writer = library.GGUFWriter(path, "llama")
        writer.add_context_length(64)
        writer.add_array("words", ["a", "b"])
        writer.add_array("numbers", [1, 2, 3])
        writer.add_float32("eps", 1e-5)
        writer.add_tensor("t", np.arange(6, dtype=np.float32).reshape(2, 3))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return [path.read_bytes()]


_SAMPLES: Mapping[str, Callable[[], Iterable[bytes]]] = {
    "sampling_parameters": _sampling_samples,
    "custom_parameters": lambda: [b'{"request_priority": "3", "tenant": "a", "cache_salt": "", "pad_id": 2, "x": 1}'],
    "word_list": lambda: [as_rows([[1, 2], [3]]).tobytes(), np.full((2, 3), -1, np.int32).tobytes()],
    "guide": lambda: [
        bytes([GUIDE_TYPES.index(kind)]) + text.encode()
        for kind, found in texts.GUIDES.items()
        for text in (*found, *texts.HOSTILE_GUIDES)
    ],
    "chat_body": _chat_samples,
    "completion_body": lambda: [b'{"model": "m", "prompt": ["a", "b"], "n": 2, "logprobs": 2, "logit_bias": {"5": 1}}'],
    "gguf": _gguf_samples,
}
