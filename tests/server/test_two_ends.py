"""A model with two end-of-sequence ids: either ends the answer and shows in no text, and ``ignore_eos`` means both."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.small_model import save_small
from tests.reference import Reference
from tests.server_fixture import RunningServer
from tests.triton_client import ask

pytestmark = [pytest.mark.server, pytest.mark.nightly]
PROMPTS = ("The capital of France is", "Once upon a time")
TOKENS, LAST = 12, 5


@pytest.fixture(scope="module")
def model(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small(tmp_path_factory.mktemp("small"), smollm2_dir)


@pytest.fixture(scope="module")
def outputs(model: Path) -> list[list[int]]:
    """What it says to each prompt where nothing ends it."""
    reference = Reference(model)
    return [reference.greedy(prompt, TOKENS) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def server(model: Path, outputs: list[list[int]]) -> Iterator[RunningServer]:
    ends = [output[LAST] for output in outputs]
    assert ends[0] != ends[1]
    for name in ("config.json", "generation_config.json"):
        content = json.loads((model / name).read_text())
        (model / name).write_text(json.dumps(content | {"eos_token_id": ends}))
    yield from RunningServer.fixture(model, weight_precision="float32")


@pytest.mark.parametrize("place", [0, 1])
def test_either_end_ends_the_answer_and_is_not_shown(
    server: RunningServer, outputs: list[list[int]], model: Path, place: int
) -> None:
    ends = {output[LAST] for output in outputs}
    said = outputs[place]
    until = next(n for n, token in enumerate(said) if token in ends)
    asked = {"text_input": PROMPTS[place], "max_tokens": TOKENS, "exclude_input_in_output": True}
    answer = ask(server.grpc_url, **asked)
    assert (answer.reason, answer.num_output) == ("eos", until + 1)
    reference = Reference(model)
    assert answer.text == reference.text(PROMPTS[place], said[:until])
    on = ask(server.grpc_url, **asked, ignore_eos=True)
    assert (on.reason, on.num_output) == ("length", TOKENS)
    assert on.text == reference.text(PROMPTS[place], said)
    least = ask(server.grpc_url, **asked, min_tokens=until + 2)
    assert least.num_output >= until + 2
