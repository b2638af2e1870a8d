"""More than the server can hold: the rest is refused by Triton Server's own queue, and nobody else is hurt."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_fixture import RunningServer
from tests.triton_client import ask, ask_all, in_background

pytestmark = pytest.mark.server
QUEUE, LOOKAHEAD, SLOTS = 16, 4, 4


@pytest.fixture(scope="module")
def server(smollm2_dir: Path) -> Iterator[RunningServer]:
    yield from RunningServer.fixture(
        smollm2_dir,
        max_batch_size=SLOTS,
        max_queue_size=QUEUE,
        parameter={"lookahead_requests": LOOKAHEAD, "lookahead_bound": LOOKAHEAD + 2},
    )


def rejected(server: RunningServer) -> int:
    """Requests that the engine's queue has refused, by the server's own metrics."""
    page = urllib.request.urlopen(server.metrics_url, timeout=10).read().decode()
    found = re.search(r'nv_inference_request_failure\{model="inflight_batcher",reason="REJECTED"[^}]*\} (\d+)', page)
    assert found is not None, page
    return int(found[1])


def test_a_flood_is_refused_beyond_the_queue_while_an_urgent_request_is_served_and_all_accepted_ones_complete(
    server: RunningServer,
) -> None:
    flood = [{"text_input": f"Number {n}:", "max_tokens": 16, "ignore_eos": True} for n in range(120)]
    before = rejected(server)
    answers: list = []
    thread, _ = in_background(lambda: answers.extend(ask_all(server.grpc_url, flood, len(flood))) or answers[0])
    urgent = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, priority=1, queue_priority=1)
    assert urgent.error == ""
    thread.join()
    refused = [answer for answer in answers if answer.error]
    served = [answer for answer in answers if not answer.error]
    assert all("Exceeds maximum queue size" in answer.error for answer in refused)
    assert all(answer.finals == 1 and answer.num_output == 16 for answer in served)
    assert len(served) > QUEUE, "a full queue, and what had left it before it was full"
    assert refused
    assert rejected(server) - before == len(refused)
    after = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, exclude_input_in_output=True)
    assert after.text == " Paris."
