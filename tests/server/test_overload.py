"""More than the server can hold: the rest is refused by Triton Server's own queue, and nobody else is hurt."""

import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpcclient

from tests.metrics_page import Page, at_rest, settled
from tests.server_fixture import RunningServer
from tests.triton_client import ask, tensors

pytestmark = pytest.mark.server
FLOOD, QUEUE, LOOKAHEAD, SLOTS, TOKENS = 500, 64, 4, 4, 12


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


def flood(server: RunningServer, count: int) -> tuple[dict[str, int], list[str]]:
    """So many requests at once, over one connection: id -> tokens of those that were served; errors of the others."""
    served: dict[str, int] = {}
    refused: list[str] = []
    over = threading.Semaphore(0)

    def take(result: Any, error: Any) -> None:
        if error is not None:
            refused.append(error.message())
            over.release()
            return
        response = result.get_response()
        served[response.id] = served.get(response.id, 0) + int(result.as_numpy("num_output_tokens").reshape(-1)[0])
        if response.parameters["triton_final_response"].bool_param:
            over.release()

    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(callback=take)
        for number in range(count):
            asked = tensors({"text_input": f"Number {number}:", "max_tokens": TOKENS, "ignore_eos": True})
            client.async_stream_infer("ensemble", asked, request_id=str(number))
        for _ in range(count):
            assert over.acquire(timeout=120)
    return served, refused


def test_after_a_request_the_server_is_made_to_look_at_its_queues_once_more(server: RunningServer) -> None:
    """It forgets them at times (backend/serving/queue_waker.py). First here, as all others leave such looks behind."""

    def executed(page: Page) -> list[float]:
        return [
            page.value("nv_inference_request_success", model=name) for name in ("preprocessing", "inflight_batcher")
        ]

    before = executed(Page.of(server))
    assert ask(server.grpc_url, text_input="Hello", max_tokens=1).error == ""
    expected = [before[0] + 2, before[1] + 3]
    assert settled(server, executed, expected) == expected
    time.sleep(1.0)
    assert executed(Page.of(server)) == expected, "such a look leads to no further one, in whichever process"


def test_a_flood_is_refused_beyond_the_queue_while_an_urgent_request_is_served_and_all_accepted_ones_complete(
    server: RunningServer,
) -> None:
    before, page_before = refusals(server), at_rest(server, 1.5)
    with ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(flood, server, FLOOD)
        deadline = time.monotonic() + 30
        while refusals(server) == before and time.monotonic() < deadline:
            time.sleep(0.02)
        assert refusals(server) > before, "the queue is full, and its metrics say so"
        urgent = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, priority=1, queue_priority=1)
        assert urgent.error == ""
        assert not flooding.done(), "the urgent request was served in the midst of the flood"
        served, refused = flooding.result()
    assert all("Exceeds maximum queue size" in message for message in refused)
    assert set(served.values()) == {TOKENS}
    assert len(served) + len(refused) == FLOOD
    assert len(served) >= QUEUE, "a full queue, and what had left it before it was full"
    assert len(refused) >= FLOOD // 2
    assert refusals(server) - before == 2 * len(refused)
    # The server's own count of the engine's model has those in it that make it look at its queue.
    ended = len(served) + 1
    assert settled(server, lambda page: (page - page_before).value("inflight_requests_total"), ended) == ended
    after = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, exclude_input_in_output=True)
    assert after.text == " Paris."
