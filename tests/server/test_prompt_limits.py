"""Prompts around the length limit, far beyond it, and many long ones at once, beside a stream that goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.small_model import MAX_SEQ_LEN, save_small
from tests.server_fixture import RunningServer
from tests.triton_client import Answer, ask, ask_all, in_background

pytestmark = [pytest.mark.server, pytest.mark.nightly]
STEP_TOKENS = 64


@pytest.fixture(scope="module")
def server(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    model = save_small(tmp_path_factory.mktemp("small"), smollm2_dir)
    yield from RunningServer.fixture(model, max_batch_size=8, max_num_tokens=STEP_TOKENS, weight_precision="float32")


def prompt(tokens: int) -> list[int]:
    return [100 + n % 1000 for n in range(tokens)]


def asked(server: RunningServer, tokens: int, **fields: object) -> Answer:
    return ask(server.grpc_url, "inflight_batcher", input_ids=prompt(tokens), ignore_eos=True, **fields)


@pytest.mark.parametrize("stream", [True, False])
def test_at_the_limit_a_prompt_is_answered_and_beyond_it_refused_with_the_numbers(
    server: RunningServer, stream: bool
) -> None:
    alone = asked(server, 5, request_output_len=200, streaming=True).ids
    thread, beside = in_background(lambda: asked(server, 5, request_output_len=200, streaming=True))
    fits = asked(server, MAX_SEQ_LEN - 1, request_output_len=1, streaming=stream)
    assert (fits.error, fits.num_output, fits.reason) == ("", 1, "length")
    for length in (MAX_SEQ_LEN, MAX_SEQ_LEN + 1, 10 * MAX_SEQ_LEN, 100 * MAX_SEQ_LEN):
        answer = asked(server, length, request_output_len=1, streaming=stream)
        assert f"needs {length + 1} tokens (prompt {length} + max_tokens 1)" in answer.error
        assert f"max_seq_len is {MAX_SEQ_LEN}" in answer.error
    thread.join()
    assert beside[0].ids == alone


def test_prompts_within_the_limit_whose_sum_is_far_beyond_a_step_are_all_answered(server: RunningServer) -> None:
    """Each of half the limit; sixteen of them are 32 steps' tokens."""
    one = {
        "model": "inflight_batcher",
        "input_ids": prompt(MAX_SEQ_LEN // 2),
        "request_output_len": 3,
        "ignore_eos": True,
        "exclude_input_in_output": True,
    }
    (alone,) = ask_all(server.grpc_url, [one], 1)
    assert len(alone.ids) == 3
    assert [answer.ids for answer in ask_all(server.grpc_url, [one] * 16, 16)] == [alone.ids] * 16
