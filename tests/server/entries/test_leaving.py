"""A client that leaves an entry, or says stop, ends its generation: streamed or not, over gRPC and HTTP."""

import http.client
import json
from pathlib import Path

import pytest

from tests.server.entries.client import (
    ONCE,
    PATIENCE,
    STREAM,
    Client,
    Fields,
    Types,
    probe,
    token_request,
)
from tests.server_fixture import RunningServer
from tests.step_trace import wait_for_steps, wait_until_quiet

pytestmark = pytest.mark.server
LONG = 1500
QUIET = 0.5


LONG_ASKS: dict[str, Fields] = {
    "tensorrt_llm": token_request([504, 3575], LONG),
    "vllm_model": {"text_input": ONCE, "sampling_parameters": json.dumps({"max_tokens": LONG, "ignore_eos": True})},
    "llmapi": {"text_input": ONCE, "sampling_param_max_tokens": LONG, "sampling_param_temperature": 1.0},
    "ensemble_uint32": {"text_input": ONCE, "max_tokens": LONG, "temperature": 1.0},
    "tensorrt_llm_bls": {"text_input": ONCE, "max_tokens": LONG, "ignore_eos": True},
}


DAILY = {("tensorrt_llm", False), ("vllm_model", True), ("tensorrt_llm_bls", True)}
LEAVING = [
    pytest.param(model, stream, marks=() if (model, stream) in DAILY else pytest.mark.nightly)
    for model in LONG_ASKS
    for stream in (True, False)
    if stream or model != "tensorrt_llm_bls"
]


@pytest.mark.parametrize(("model", "stream"), LEAVING)
def test_a_client_that_leaves_ends_its_generation(
    server: RunningServer,
    types: Types,
    trace_file: Path,
    model: str,
    stream: bool,
) -> None:
    """Of an ensemble's whole answer nobody tells the models; the entries that are models of their own see it."""
    before = wait_until_quiet(trace_file, QUIET)
    leaving = Client(server, types)
    leaving.send(model, **LONG_ASKS[model] | {STREAM.get(model, "stream"): stream})
    wait_for_steps(trace_file, before + 5)
    leaving.client.stop_stream(cancel_requests=True)
    assert wait_until_quiet(trace_file, QUIET) - before < LONG / 2
    leaving.client.close()
    probe(server)


@pytest.mark.parametrize("model", ["vllm_model", pytest.param("tensorrt_llm", marks=pytest.mark.nightly)])
def test_an_http_client_that_leaves_ends_its_generation(server: RunningServer, trace_file: Path, model: str) -> None:
    before = wait_until_quiet(trace_file, QUIET)
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=PATIENCE)
    fields = {name: value[0] if name == "input_lengths" else value for name, value in LONG_ASKS[model].items()}
    connection.request(
        "POST", f"/v2/models/{model}/generate_stream", json.dumps(fields | {STREAM.get(model, "stream"): True})
    )
    response = connection.getresponse()
    assert b"data:" in response.read(100)
    response.close()
    connection.close()
    assert wait_until_quiet(trace_file, QUIET) - before < LONG / 2
    probe(server)


NIGHTLY = [pytest.param(model, marks=pytest.mark.nightly) for model in ("ensemble_uint32", "llmapi")]


@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble", *NIGHTLY])
def test_a_stop_with_the_same_request_id_ends_the_request(
    client: Client, server: RunningServer, types: Types, trace_file: Path, model: str
) -> None:
    """Sent to the model itself; for a request to the ensemble, to tensorrt_llm, as with TensorRT-LLM."""
    before = wait_until_quiet(trace_file, QUIET)
    fields = LONG_ASKS["tensorrt_llm_bls" if model == "ensemble" else model]
    client.send(model, request_id="mine", **fields)
    wait_for_steps(trace_file, before + 5)
    stopper = Client(server, types)
    to = "tensorrt_llm" if model == "ensemble" else model
    dummy = {"tensorrt_llm": token_request([0], 1), "llmapi": {"text_input": "x"}}.get(
        to, {"text_input": "x", "max_tokens": 1}
    )
    stopper.send(to, request_id="mine", stop=True, **dummy)
    stop = stopper.receive()
    assert (stop.error, stop.responses, stop.finals) == ("", [], 1)
    ended = client.receive()
    if model == "llmapi":
        assert "cancelled" in ended.error
    else:
        assert (ended.error, ended.column("finish_reason")) == ("", [b"cancelled"])
    assert wait_until_quiet(trace_file, QUIET) - before < LONG / 2
    stopper.client.stop_stream()
