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


def counted(server: RunningServer, family: str, labels: str) -> int:
    """A counter of the server's own metrics."""
    page = urllib.request.urlopen(server.metrics_url, timeout=10).read().decode()
    found = re.search(rf"^{family}{{{labels}[^}}]*}} (\d+)$", page, re.MULTILINE)
    assert found is not None, page
    return int(found[1])


def refusals(server: RunningServer) -> int:
    """Triton Server 2.51 counts what a step's queue refuses as the ensemble's failure for an OTHER reason, twice."""
    return counted(server, "nv_inference_request_failure", 'model="ensemble",reason="OTHER"')


def test_a_flood_is_refused_beyond_the_queue_while_an_urgent_request_is_served_and_all_accepted_ones_complete(
    server: RunningServer,
) -> None:
    flood = [{"text_input": f"Number {n}:", "max_tokens": 16, "ignore_eos": True} for n in range(120)]
    before = refusals(server)
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
    assert refusals(server) - before == 2 * len(refused)
    assert counted(server, "nv_inference_request_success", 'model="inflight_batcher"') == len(served) + 1
    after = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, exclude_input_in_output=True)
    assert after.text == " Paris."
