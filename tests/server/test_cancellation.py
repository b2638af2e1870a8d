"""A client that goes away, or says stop, frees its blocks and slot: on every path that Triton Server lets us see."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpcclient

from tests.metrics_page import Page
from tests.server_fixture import RunningServer
from tests.step_trace import wait_until_quiet
from tests.triton_client import ask, ask_all, tensors

pytestmark = pytest.mark.server
PATIENCE = 60.0
LONG = 1500
QUIET = 1.0


@pytest.fixture(scope="module")
def server(smollm2_dir: Path, trace_file: Path) -> Iterator[RunningServer]:
    parameter = {"step_trace_file": trace_file, "cancel_poll_ms": 5, "metrics": "false"}
    yield from RunningServer.fixture(smollm2_dir, max_batch_size=4, parameter=parameter)


def begin(server: RunningServer, model: str, request_id: str = "", **fields: Any) -> grpcclient.InferenceServerClient:
    """Start a stream and return once two responses have come."""
    came = threading.Semaphore(0)
    client = grpcclient.InferenceServerClient(server.grpc_url)
    client.start_stream(callback=lambda result, error: came.release())
    client.async_stream_infer(model, tensors(fields), request_id=request_id)
    assert came.acquire(timeout=PATIENCE)
    assert came.acquire(timeout=PATIENCE)
    return client


TOKENS = {"input_ids": [504, 3575, 282, 4649, 314], "request_output_len": LONG, "streaming": True, "ignore_eos": True}
TEXT = {"text_input": "Once upon a time", "max_tokens": LONG, "stream": True, "ignore_eos": True}


@pytest.mark.parametrize(("model", "fields"), [("inflight_batcher", TOKENS), ("ensemble", TEXT)])
def test_a_grpc_client_that_leaves_ends_its_generation(
    server: RunningServer, trace_file: Path, model: str, fields: dict[str, Any]
) -> None:
    before = wait_until_quiet(trace_file, QUIET)
    begin(server, model, **fields).stop_stream(cancel_requests=True)
    assert wait_until_quiet(trace_file, QUIET) - before < LONG / 2
    check_alive(server)


def test_an_http_client_that_leaves_ends_its_generation(server: RunningServer, trace_file: Path) -> None:
    import http.client

    before = wait_until_quiet(trace_file, QUIET)
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=PATIENCE)
    connection.request("POST", "/v2/models/ensemble/generate_stream", json.dumps(TEXT))
    response = connection.getresponse()
    assert b"data:" in response.read(100)
    response.close()
    connection.close()
    assert wait_until_quiet(trace_file, QUIET) - before < LONG / 2
    check_alive(server)


def test_a_stop_with_the_same_request_id_ends_the_stream_with_what_it_has(server: RunningServer) -> None:
    done = threading.Event()
    reasons: list[str] = []

    def take(result: Any, error: Any) -> None:
        reason = None if error else result.as_numpy("finish_reason")
        if reason is not None:
            reasons.append(reason.reshape(-1)[0].decode())
        if error or result.get_response().parameters["triton_final_response"].bool_param:
            done.set()

    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(callback=take)
        client.async_stream_infer("inflight_batcher", tensors(TOKENS), request_id="mine")
        while len(reasons) < 3:
            time.sleep(0.01)
        stopped = ask(
            server.grpc_url, "inflight_batcher", request_id="mine", stop=True, input_ids=[0], request_output_len=1
        )
        assert (stopped.error, stopped.finals, stopped.ids) == ("", 1, [])
        assert done.wait(PATIENCE)
    assert reasons[-1] == "cancelled"
    assert len(reasons) < LONG / 2
    check_alive(server)


def test_a_stop_of_nobody_and_a_stop_after_the_end_do_no_harm(server: RunningServer) -> None:
    for request_id in ("nobody", "mine"):
        answer = ask(
            server.grpc_url, "inflight_batcher", request_id=request_id, stop=True, input_ids=[0], request_output_len=1
        )
        assert (answer.error, answer.finals) == ("", 1)
    unnamed = ask(server.grpc_url, "inflight_batcher", stop=True, input_ids=[0], request_output_len=1)
    assert "stop: needs the request id" in unnamed.error
    check_alive(server)


def test_asking_about_cancellation_all_the_time_while_requests_end_does_not_hurt_the_server(
    server: RunningServer,
) -> None:
    """Triton Server 2.51 crashes when it is asked about a request whose final response is being sent."""
    asked = [{"model": "inflight_batcher", "input_ids": [n + 5], "request_output_len": 1} for n in range(200)]
    assert all(answer.finals == 1 and not answer.error for answer in ask_all(server.grpc_url, asked, 8))
    check_alive(server)


def test_a_request_past_its_deadline_ends_with_what_it_has(server: RunningServer) -> None:
    answer = ask(server.grpc_url, **TEXT, timeout=1_500_000)
    assert answer.error == ""
    assert answer.reason == "timeout"
    assert 0 < answer.num_output < LONG
    check_alive(server)


def check_alive(server: RunningServer) -> None:
    """The next request is answered, and right; the engine checks its pool whenever it runs empty."""
    answer = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, exclude_input_in_output=True)
    assert (answer.error, answer.text) == ("", " Paris.")


def test_an_engine_whose_metrics_are_off_has_none_on_the_page(server: RunningServer) -> None:
    check_alive(server)
    page = Page.of(server)
    assert "nv_inference_request_success" in page.names
    assert not any(name.startswith(("inflight_", "vllm:", "nv_trt_llm_", "nv_llm_")) for name in page.names)
