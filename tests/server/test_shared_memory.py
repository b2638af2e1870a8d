"""A container's default of 64 MB of shared memory: what does not fit is an error to its sender; the server stays."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.launcher.from_outside import mark_of
from scripts.soaking.subject import SMALL, may_bound_shared_memory
from tests.server_fixture import RunningServer
from tests.triton_client import Answer, ask, ask_all

pytestmark = [
    pytest.mark.server,
    pytest.mark.nightly,
    pytest.mark.skipif(not may_bound_shared_memory(), reason="a /dev/shm of its own takes root"),
]
SHM_MIB, STREAMS, TOKENS = 64, 64, 30
HUGE = "word " * (8 * 2**20 // 5)


@pytest.fixture(scope="module")
def server(smollm2_dir: Path) -> Iterator[RunningServer]:
    with RunningServer.start(smollm2_dir, within=[*SMALL, str(SHM_MIB)], max_batch_size=8) as server:
        yield server


def huge(server: RunningServer) -> Answer:
    return ask(server.grpc_url, text_input=HUGE, max_tokens=2)


def test_many_streams_and_a_huge_prompt_at_once_end_each_in_its_way_and_no_process_dies(server: RunningServer) -> None:
    mark, log = mark_of(server.process.pid), server.log()
    story = {"text_input": "Once upon a time", "stream": True, "ignore_eos": True, "max_tokens": TOKENS}
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(huge, server)
        answers = ask_all(server.grpc_url, [story] * STREAMS, at_once=STREAMS)
        answer = refused.result()
    assert answer.error
    assert "Traceback" not in answer.error
    assert {(each.error, each.num_output, each.finals) for each in answers} == {("", TOKENS, 1)}
    after = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, exclude_input_in_output=True)
    assert (after.error, after.text) == ("", " Paris.")
    assert mark_of(server.process.pid) == mark, "it is the same server"
    assert server.log() == log, "nothing was said of it that an operator would have to read"
