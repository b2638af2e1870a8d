"""Requests that run together: they join at any step, and each gets what it gets alone."""

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.reference import Reference
from tests.server.ensemble.asking import probe
from tests.server_fixture import RunningServer
from tests.step_trace import steps
from tests.triton_client import Answer, ask, ask_all, in_background

pytestmark = pytest.mark.server


def test_a_request_joins_while_eight_others_decode_and_gets_its_first_token_before_any_of_them_ends(
    server: RunningServer, trace_file: Path
) -> None:
    story = {"text_input": "Once upon a time", "max_tokens": 200, "stream": True, "end_id": 5}
    running = [in_background(lambda: ask(server.grpc_url, **story)) for _ in range(8)]
    deadline = time.monotonic() + 30
    known = 0
    while not known and time.monotonic() < deadline:
        so_far = steps(trace_file)
        if so_far and [work[2] for work in so_far[-1]["work"]] == [1] * 8:
            known = len(so_far)
        time.sleep(0.05)
    late = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, stream=True)
    for thread, _ in running:
        thread.join()
    assert late.error == ""
    works = [step["work"] for step in steps(trace_file)[known:]]
    newcomer = max(part[0] for work in works for part in work)
    joined = next(n for n, work in enumerate(works) if any(part[0] == newcomer for part in work))
    others = [part for part in works[joined] if part[0] != newcomer]
    assert len(others) == 8
    assert all(tokens == 1 for _, _, tokens in others), "the others decode in the very step that computes the prompt"
    assert all(answers[0].num_output == 200 for _, answers in running)


def test_two_hundred_requests_of_random_lengths_are_complete_and_equal_to_their_lone_runs(
    server: RunningServer, smollm2_dir: Path
) -> None:
    """Some against a lone run, to the id, and some (all, at night) against transformers' logits, up to ties of 1e-4."""
    night = bool(os.environ.get("TESTS_NIGHTLY"))
    longest_prompt, longest_output = (160, 24) if night else (48, 12)
    rng = random.Random(20)
    reference = Reference(smollm2_dir)
    asked = []
    for _ in range(200):
        ids = [rng.randrange(3, 49000) for _ in range(rng.randint(1, longest_prompt))]
        asked.append(
            {
                "model": "inflight_batcher",
                "input_ids": ids,
                "request_output_len": rng.randint(1, longest_output),
                "streaming": True,
            }
        )
    answers = ask_all(server.grpc_url, asked, 32)
    for fields, answer in zip(asked, answers, strict=True):
        check_complete(fields, answer)
    for n in range(0, 200, 1 if night else 25):
        assert reference.tied_ids(asked[n]["input_ids"], answers[n].ids)
    for n in rng.sample(range(200), 200 if night else 16):
        assert ask(server.grpc_url, **asked[n]).ids == answers[n].ids
    # The engine checks its pool whenever it runs empty and ends with an error if a block is missing.
    probe(server)


def check_complete(fields: dict[str, Any], answer: Answer) -> None:
    assert answer.error == ""
    assert answer.finals == 1
    assert answer.num_output == len(answer.ids)
    assert answer.num_input == len(fields["input_ids"])
    ended_early = answer.ids[-1] in (0, 2)
    assert answer.reason == ("eos" if ended_early else "length")
    assert ended_early or len(answer.ids) == fields["request_output_len"]
