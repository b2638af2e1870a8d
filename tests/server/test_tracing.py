"""The life of a request, told to a collector by the server and by the engine, is one trace."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.otlp_receiver import Receiver, Span
from tests.server.entries.client import Fields
from tests.server.entries.test_doors import ASKS
from tests.server_fixture import RunningServer

pytestmark = [pytest.mark.server, pytest.mark.nightly]
NAME = "inflight_batcher.request"
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def server(smollm2_dir: Path, receiver: Receiver) -> Iterator[RunningServer]:
    yield from RunningServer.fixture(
        smollm2_dir, max_batch_size=2, kv_cache_tokens=2048, max_num_tokens=16, otlp_endpoint=receiver.endpoint
    )


def generate(server: RunningServer, model: str, body: Fields, trace: str = TRACE) -> None:
    headers = {"content-type": "application/json", "traceparent": f"00-{trace}-{CALLER}-01"}
    url = f"{server.http_url}/v2/models/{model}/generate"
    asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert answer.status == 200


def ancestors(span: Span, spans: list[Span]) -> list[Span]:
    by_id = {each.own: each for each in spans}
    found = []
    while parent := by_id.get(span.parent):
        found.append(parent)
        span = parent
    return found


def test_the_engines_spans_hang_under_the_servers_and_those_under_the_callers(
    server: RunningServer, receiver: Receiver
) -> None:
    generate(server, "ensemble", {"text_input": "The capital of France is " * 8, "max_tokens": 5})
    (root,) = receiver.wait_for(NAME)
    receiver.wait_for("InferRequest")
    assert root.service == "inflight_batcher"
    assert root.trace == TRACE
    above = ancestors(root, receiver.spans)
    assert {span.service for span in above} == {"triton-inference-server"}
    assert above[-1].parent == CALLER
    own = [span for span in receiver.spans if span.parent == root.own]
    assert [span.name for span in sorted(own, key=lambda span: span.start)] == ["queued", "running"]
    chunks = [span for span in receiver.spans if span.name == "chunk"]
    assert {span.parent for span in chunks} == {span.own for span in own if span.name == "running"}
    prompt = root.attributes["gen_ai.usage.input_tokens"]
    assert sum(span.attributes["tokens"] for span in chunks) == prompt
    assert len(chunks) == -(-prompt // 16)
    assert root.attributes["gen_ai.usage.output_tokens"] == 5
    assert root.events == ("admitted", "first_token", "ended")
    assert above[-1].start <= root.start <= root.end <= above[-1].end


def test_through_every_other_entry_the_engines_span_hangs_under_the_entrys_and_that_under_the_callers(
    server: RunningServer, receiver: Receiver
) -> None:
    before = len([span for span in receiver.spans if span.name == NAME])
    others = [model for model in ASKS if model != "ensemble"]
    traces = {model: f"{number:032x}" for number, model in enumerate(others, 1)}
    for model, trace in traces.items():
        generate(server, model, ASKS[model], trace)
    roots = {span.trace: span for span in receiver.wait_for(NAME, before + len(others))[before:]}
    receiver.wait_for("InferRequest", 1 + len(others))
    for model, trace in traces.items():
        above = ancestors(roots[trace], receiver.spans)
        assert {span.service for span in above} == {"triton-inference-server"}
        assert model in [span.name for span in above]
        assert above[-1].parent == CALLER
        assert roots[trace].attributes["gen_ai.usage.output_tokens"] == 4
