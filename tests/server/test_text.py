"""The text that comes out of a real server equals transformers' own, whatever the chunks and the company.

24 varied prompts on SmolLM2 and 8 on Gemma 3, greedy, 64 new tokens: streamed and not, alone and 16 (Gemma 3: 8) at
once, with prompt chunks of 16, 64 and 512 tokens. Where two logits tie within 1e-4 either text is accepted
(tests/reference.py). All of this runs with TESTS_NIGHTLY=1; every day SmolLM2 alone, in some of the combinations, with
a part of the prompts and 24 tokens.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.prompts import FOR_GEMMA, VARIED
from tests.reference import Reference
from tests.server_fixture import RunningServer
from tests.triton_client import Answer, ask_all

pytestmark = pytest.mark.server
EXACT = {"max_step_ms": 0, "weight_precision": "float32"}  # whole chunks, and the weights of the reference
NIGHT = bool(os.environ.get("TESTS_NIGHTLY"))
NEW_TOKENS = 64 if NIGHT else 24
PROMPTS = VARIED if NIGHT else VARIED[2::4]
GEMMA_PROMPTS = FOR_GEMMA if NIGHT else FOR_GEMMA[1::2]


@pytest.fixture(scope="module")
def smollm2(smollm2_dir: Path) -> Reference:
    return Reference(smollm2_dir)


@pytest.fixture(scope="module")
def gemma3(gemma3_dir: Path) -> Reference:
    return Reference(gemma3_dir)


@pytest.fixture(scope="module")
def chunked_server(request: pytest.FixtureRequest, smollm2_dir: Path) -> Iterator[RunningServer]:
    yield from RunningServer.fixture(smollm2_dir, max_num_tokens=request.param, max_batch_size=16, parameter=EXACT)


@pytest.fixture(scope="module")
def gemma_server(request: pytest.FixtureRequest, gemma3_dir: Path) -> Iterator[RunningServer]:
    yield from RunningServer.fixture(gemma3_dir, max_num_tokens=request.param, max_batch_size=8, parameter=EXACT)


def answers(server: RunningServer, prompts: list[str], stream: bool, at_once: int) -> list[Answer]:
    fields = [
        {"text_input": p, "max_tokens": NEW_TOKENS, "stream": stream, "exclude_input_in_output": True} for p in prompts
    ]
    return ask_all(server.grpc_url, fields, at_once)


def check(reference: Reference, prompt: str, answer: Answer, stream: bool) -> None:
    """Text, counts and ending of one answer against transformers' generate."""
    assert answer.error == ""
    assert answer.finals == 1
    assert stream or len(answer.chunks) == 1
    assert answer.num_input == len(reference.prompt_ids(prompt))
    expected = reference.greedy(prompt, NEW_TOKENS)
    if answer.text == reference.text(prompt, expected):
        assert answer.num_output == len(expected)
        assert answer.reason == ("length" if len(expected) == NEW_TOKENS else "eos")
        return
    tokens = reference.tokenizer(answer.text, add_special_tokens=False)["input_ids"]
    assert reference.tied(prompt, tokens), (
        f"{prompt[:40]!r}: {answer.text!r} is not {reference.text(prompt, expected)!r}"
    )


def matrix(at_once: int, every_day: set[tuple[int, bool, int]]) -> list[ParameterSet]:
    """All combinations of chunk, streamed and company, one server's after another; at night but for ``every_day``."""
    cases = itertools.product((512, 64, 16), (True, False), (1, at_once))
    return [pytest.param(*case, marks=() if case in every_day else pytest.mark.nightly) for case in cases]


@pytest.mark.parametrize(
    ("chunked_server", "stream", "at_once"),
    matrix(16, every_day={(64, True, 16)}),
    indirect=["chunked_server"],
)
def test_smollm2_says_what_transformers_says(
    chunked_server: RunningServer, smollm2: Reference, stream: bool, at_once: int
) -> None:
    for prompt, answer in zip(PROMPTS, answers(chunked_server, PROMPTS, stream, at_once), strict=True):
        check(smollm2, prompt, answer, stream)


@pytest.mark.parametrize("chunked_server", [64], indirect=True)  # the server of the test before
@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_smollm2_alone_says_what_transformers_says(
    chunked_server: RunningServer, smollm2: Reference, stream: bool
) -> None:
    prompts = PROMPTS[:3]
    for prompt, answer in zip(prompts, answers(chunked_server, prompts, stream, 1), strict=True):
        check(smollm2, prompt, answer, stream)


@pytest.mark.parametrize(
    ("gemma_server", "stream", "at_once"),
    matrix(8, every_day=set()),
    indirect=["gemma_server"],
)
def test_gemma3_says_what_transformers_says_beyond_its_window_too(
    gemma_server: RunningServer, gemma3: Reference, stream: bool, at_once: int
) -> None:
    assert max(len(gemma3.prompt_ids(p)) for p in GEMMA_PROMPTS) > 512 + NEW_TOKENS
    for prompt, answer in zip(GEMMA_PROMPTS, answers(gemma_server, GEMMA_PROMPTS, stream, at_once), strict=True):
        check(gemma3, prompt, answer, stream)
