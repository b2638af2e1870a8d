"""Parts of a busy server die or stop: clients hear of it, and it serves again by itself.

The limits in seconds are those that an operator is promised; they are wide beside what is seen.
"""

from __future__ import annotations

import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from loadtests.asks import Ask
from loadtests.doors.base import DoorError
from loadtests.doors.http_door import HttpDoor
from scripts.launcher import leftovers
from scripts.launcher.from_outside import mark_of, server_of, stub_of
from tests.server_fixture import RunningServer
from tests.triton_client import ask

pytestmark = [pytest.mark.server, pytest.mark.nightly]
ENGINE = "inflight_batcher"
STUCK_SECONDS = 3.0
NOT_READY_WITHIN, TOLD_WITHIN, SERVING_WITHIN = 5.0, 10.0, 30.0
STREAMS = 6
POLL = 0.02


@pytest.fixture(scope="module")
def server(smollm2_dir: Path) -> Iterator[RunningServer]:
    yield from RunningServer.fixture(smollm2_dir, max_batch_size=4, parameter={"stuck_seconds": STUCK_SECONDS})


def ready(server: RunningServer) -> bool:
    try:
        with urllib.request.urlopen(f"{server.http_url}/v2/health/ready", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def ended_with(call: Callable[[], str]) -> tuple[str, float]:
    """A stream's error, and the moment when it ended."""
    return call(), time.monotonic()


def grpc_stream(server: RunningServer) -> str:
    return ask(server.grpc_url, text_input="Once upon a time", stream=True, ignore_eos=True, max_tokens=7000).error


def http_stream(server: RunningServer) -> str:
    wanted = Ask(prompt="Once upon a time", tokens=7000, level=2)
    try:
        with closing(HttpDoor(server.http_url).stream(wanted)) as pieces:
            for _ in pieces:
                pass
    except DoorError as error:
        return str(error)
    return ""


def running(server: RunningServer) -> float:
    page = urllib.request.urlopen(server.metrics_url, timeout=5).read().decode()
    (line,) = (line for line in page.splitlines() if line.startswith("inflight_running_sequences{"))
    return float(line.split()[-1])


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Seconds until it holds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, what
        time.sleep(POLL)
    return time.monotonic() - began


def answers(server: RunningServer) -> bool:
    try:
        answer = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, exclude_input_in_output=True)
    except InferenceServerException:  # the stream broke before the request was on it
        return False
    assert answer.error or answer.text == " Paris."
    return not answer.error


def kill(mark: str, pid: int) -> None:
    leftovers.send(mark, pid, signal.SIGKILL)


def stop(mark: str, pid: int) -> None:
    leftovers.send(mark, pid, signal.SIGSTOP)


@pytest.mark.parametrize(
    ("harm", "part", "unseen"),
    [
        pytest.param(kill, ENGINE, 0.0, id="the engine's stub is killed"),
        pytest.param(kill, "postprocessing", 0.0, id="the detokenizer's stub is killed"),
        pytest.param(stop, ENGINE, STUCK_SECONDS, id="the engine's stub stands still"),
        pytest.param(kill, "", 0.0, id="the server is killed"),
    ],
)
def test_under_load_it_is_not_ready_soon_every_stream_hears_of_it_and_it_serves_again_by_itself(
    server: RunningServer, harm: Callable[[str, int], None], part: str, unseen: float
) -> None:
    """unseen: seconds for which nobody can know."""
    wait_for(lambda: answers(server), SERVING_WITHIN, "it serves before")
    mark = mark_of(server.process.pid)
    pool = ThreadPoolExecutor(STREAMS)
    try:
        calls = [grpc_stream if number % 3 else http_stream for number in range(STREAMS)]
        streams: list[Future[tuple[str, float]]] = [
            pool.submit(ended_with, lambda call=call: call(server)) for call in calls
        ]
        wait_for(lambda: running(server) == 4, 60, "four of them run")
        assert not any(stream.done() for stream in streams)
        harm(mark, stub_of(mark, part) if part else server_of(mark))
        began = time.monotonic()
        wait_for(lambda: not ready(server), unseen + NOT_READY_WITHIN, "readiness is false")
        ended = [stream.result(timeout=60) for stream in streams]
        wait_for(lambda: ready(server) and answers(server), 120, "it serves again")
        serving = time.monotonic() - began
    finally:
        pool.shutdown(wait=False)  # a stream that is not told would keep this test from saying so
    silent = [call.__name__ for call, (error, _) in zip(calls, ended, strict=True) if not error]
    assert silent == [], "an end without a word is no answer"
    assert max(moment - began for _, moment in ended) < unseen + TOLD_WITHIN
    assert serving < unseen + SERVING_WITHIN
    assert mark_of(server.process.pid) != mark
    assert (leftovers.marked_processes(mark), leftovers.shared_memory(mark)) == ([], [])
    assert server.process.poll() is None
