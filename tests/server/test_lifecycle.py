"""Ends and beginnings with streams open: SIGTERM, unloading and loading."""

import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient

from tests.metrics_page import Page, settled
from tests.server_fixture import RunningServer
from tests.triton_client import Answer, ask, in_background, tensors

pytestmark = pytest.mark.server
ENGINE = "inflight_batcher"
TOKENS = {"input_ids": [504, 3575], "input_lengths": 2, "request_output_len": 8000, "streaming": True}
STORY = {"text_input": "Once upon a time", "stream": True, "ignore_eos": True}


def stream(server: RunningServer, tokens: int) -> tuple[threading.Thread, list[Answer]]:
    return in_background(lambda: ask(server.grpc_url, **STORY, max_tokens=tokens))


def ready(server: RunningServer) -> bool:
    try:
        return bool(urllib.request.urlopen(f"{server.http_url}/v2/health/ready", timeout=5).status == 200)
    except urllib.error.HTTPError:
        return False


def test_sigterm_lets_open_streams_finish_and_refuses_new_requests(smollm2_dir: Path) -> None:
    """What cannot finish within the grace gets an error that says so, not a broken connection."""
    with RunningServer.start(smollm2_dir, max_batch_size=4, grace_seconds=9) as server:
        began = time.monotonic()
        ask(server.grpc_url, **STORY, max_tokens=60)
        # Some seconds on whatever machine: longer than until it is asked below, within the grace beside two others.
        enough = int(3 * 60 / (time.monotonic() - began))
        short, long = stream(server, enough), stream(server, 8000)
        entry = in_background(lambda: ask(server.grpc_url, "tensorrt_llm", **TOKENS))
        time.sleep(1.0)
        server.process.send_signal(signal.SIGTERM)
        while ready(server):
            time.sleep(0.02)
        time.sleep(0.3)  # readiness goes first, so that nobody sends what would be refused
        refused = ask(server.grpc_url, text_input="Hello", max_tokens=2)
        assert "the server is shutting down" in refused.error
        assert not short[1], "it is still being served"
        for thread, _ in (short, long, entry):
            thread.join()
        assert server.process.wait(15) == 0
    assert (short[1][0].error, short[1][0].num_output, short[1][0].reason) == ("", enough, "length")
    assert "shutting down and the time to finish is over" in long[1][0].error
    assert "shutting down and the time to finish is over" in entry[1][0].error, "an entry hears of it, too"
    assert long[1][0].num_output > enough


@pytest.fixture(scope="module")
def controlled(smollm2_dir: Path) -> Iterator[RunningServer]:
    parameter = {"metrics_aliases": "false", "metrics_interval_ms": 20}
    yield from RunningServer.fixture(smollm2_dir, max_batch_size=32, model_control=True, parameter=parameter)


def our_families(page: Page) -> set[str]:
    return {name for name in page.names if name.startswith(("inflight_", "vllm:", "nv_trt_llm_", "nv_llm_"))}


def num_ended(page: Page) -> float:
    return page.value("inflight_requests_total")


def slots(page: Page) -> float:
    return page.value("inflight_slots")


@pytest.mark.parametrize(
    ("streams", "cycles"), [(32, 1), *(pytest.param(n, 20, marks=pytest.mark.nightly) for n in (0, 1, 8))]
)
def test_the_engine_is_unloaded_and_loaded_again_while_streams_are_open(
    controlled: RunningServer, streams: int, cycles: int
) -> None:
    """Triton Server lets the streams finish; new requests are refused meanwhile, and served once it is loaded again."""
    with grpcclient.InferenceServerClient(controlled.grpc_url) as client:
        for _ in range(cycles):
            ended = num_ended(Page.of(controlled))
            opened = [stream(controlled, 30) for _ in range(streams)]
            if streams:
                time.sleep(1.0)
            client.unload_model(ENGINE)
            refused = ask(controlled.grpc_url, text_input="Hello", max_tokens=2)
            assert refused.error
            for thread, answers in opened:
                thread.join()
                assert (answers[0].error, answers[0].num_output) == ("", 30)
            assert settled(controlled, num_ended, ended + streams) == ended + streams
            assert settled(controlled, slots, 0) == 0, "an engine that has gone has no share in a gauge"
            client.load_model(ENGINE)
            assert num_ended(Page.of(controlled)) == ended + streams, "the next engine's counts go on"
            assert settled(controlled, slots, 32) == 32
            assert all(name.startswith("inflight_") for name in our_families(Page.of(controlled))), "no aliases"
            answer = ask(
                controlled.grpc_url, text_input="The capital of France is", max_tokens=2, exclude_input_in_output=True
            )
            assert (answer.error, answer.text) == ("", " Paris.")
            assert settled(controlled, num_ended, ended + streams + 1) == ended + streams + 1
    assert controlled.process.poll() is None


def test_a_stream_whose_reader_has_gone_does_not_keep_the_engine_from_being_unloaded(
    controlled: RunningServer,
) -> None:
    with grpcclient.InferenceServerClient(controlled.grpc_url) as client:
        gone = grpcclient.InferenceServerClient(controlled.grpc_url)
        came = threading.Event()
        gone.start_stream(callback=lambda result, error: came.set())
        gone.async_stream_infer("ensemble", tensors({**STORY, "max_tokens": 4000}))
        assert came.wait(60)
        gone.stop_stream(cancel_requests=True)
        client.unload_model(ENGINE)
        client.load_model(ENGINE)
        assert ask(controlled.grpc_url, text_input="Hello", max_tokens=2).error == ""
