"""Every way into the entries, many requests at once, errors beside answers, unloading."""

import json

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.reference import Reference
from tests.server.entries.client import (
    FRANCE,
    PATIENCE,
    STREAM,
    Client,
    Fields,
    Types,
    post,
    post_bytes,
    probe,
    token_request,
)
from tests.server_fixture import RunningServer

pytestmark = pytest.mark.server


ASKS: dict[str, Fields] = {
    "ensemble": {"text_input": FRANCE, "max_tokens": 4},
    "inflight_batcher": {"input_ids": [504, 3575], "request_output_len": 4},
    "tensorrt_llm": {"input_ids": [504, 3575], "input_lengths": 2, "request_output_len": 4},
    "tensorrt_llm_bls": {"text_input": FRANCE, "max_tokens": 4},
    "ensemble_uint32": {"text_input": FRANCE, "max_tokens": 4},
    "vllm_model": {"text_input": FRANCE, "max_tokens": 4, "temperature": 0},
    "llmapi": {"text_input": FRANCE, "sampling_param_max_tokens": 4},
}


@pytest.mark.parametrize("model", ASKS)
def test_every_door_of_a_decoupled_model_answers_or_says_why_not(server: RunningServer, model: str) -> None:
    """HTTP generate, generate_stream, infer and unary gRPC; streams over gRPC are in the other tests."""
    body = ASKS[model]
    status, answer = post(server, f"{model}/generate", body)
    assert status == 200
    assert json.loads(answer)
    for flag in ({}, {STREAM.get(model, "stream"): False}, {STREAM.get(model, "stream"): True}):
        status, answer = post(server, f"{model}/generate_stream", body | flag)
        events = [json.loads(line.removeprefix("data: ")) for line in answer.split("\n\n") if line]
        assert status == 200
        assert (len(events) > 1) == (True in flag.values())
    with (
        grpcclient.InferenceServerClient(server.grpc_url) as unary,
        pytest.raises(InferenceServerException, match="doesn't support models with decoupled"),
    ):
        unary.infer(model, [])
    status, answer = post(server, f"{model}/infer", {"inputs": []})
    assert status in (400, 501)
    assert "decoupled" in answer


@pytest.mark.parametrize("model", ASKS)
def test_a_name_or_an_id_that_is_no_utf8_is_refused_by_name(server: RunningServer, model: str) -> None:
    body = json.dumps(ASKS[model]).encode()
    for more, problem in (
        (b'"caf\xe9": 1', "parameters: a name or a text in them is not valid UTF-8"),
        (b'"id": "caf\xe9"', "id: not valid UTF-8"),
    ):
        status, answer = post_bytes(server, f"{model}/generate", b"{" + more + b", " + body[1:])
        assert status == 400
        assert json.loads(answer)["error"].removeprefix(f"in ensemble '{model}', ") == problem


@pytest.mark.nightly
def test_seventy_whole_answers_at_once_are_all_given_though_each_holds_a_thread_of_the_servers(
    server: RunningServer, types: Types, reference: Reference
) -> None:
    """Triton Server lends a model 32 threads for requests of its own and for its responses together."""
    client = Client(server, types)
    prompt = list(reference.prompt_ids(FRANCE))
    for number in range(70):
        client.send("tensorrt_llm", request_id=str(number), **token_request(prompt, 6, exclude_input_in_output=True))
    expected = list(reference.greedy(FRANCE, 6))
    seen: set[str] = set()
    while len(seen) < 70:
        result, error = client.responses.get(timeout=PATIENCE)
        assert error is None
        if result.as_numpy("output_ids") is not None:
            assert result.as_numpy("output_ids").reshape(-1).tolist() == expected
            seen.add(result.get_response().id)
    client.client.stop_stream()
    probe(server)


def test_errors_of_one_request_on_a_stream_leave_the_others_alone(client: Client) -> None:
    client.send("vllm_model", request_id="good", text_input=FRANCE, sampling_parameters='{"max_tokens": 30}')
    client.send("vllm_model", request_id="bad", text_input=FRANCE, sampling_parameters="{")
    errors, ids = [], []
    while len(errors) + len(ids) < 2:
        result, error = client.responses.get(timeout=PATIENCE)
        if error is not None:
            errors.append(error.message())
        elif result.get_response().outputs:
            ids.append(result.get_response().id)
    assert ids == ["good"]
    assert "sampling_parameters: is not valid JSON" in errors[0]


FAILS_MIDWAY: Fields = {
    "text_input": FRANCE,
    "max_tokens": 20,
    "guided_decoding_guide_type": "regex",
    "guided_decoding_guide": "( one){6}Q",
    "bad_words": ["Q"],
}
"""After six words nothing is left that the guide allows."""


def assert_said_before_it_failed(text: str) -> None:
    """The last response may be lost, here of a word: Triton Server sends nothing that comes after a step has failed."""
    assert text in (" one" * 5, " one" * 6)


def test_a_failure_in_mid_stream_is_an_event_of_that_stream_and_an_error_of_that_request_alone(
    server: RunningServer, client: Client
) -> None:
    _, answer = post(server, "ensemble/generate_stream", FAILS_MIDWAY | {"stream": True})
    *events, last = [json.loads(line.removeprefix("data: ")) for line in answer.split("\n\n") if line]
    assert_said_before_it_failed("".join(event["text_output"] for event in events))
    assert "is left that the guide allows" in last["error"]
    client.send("ensemble", request_id="good", text_input=FRANCE, max_tokens=30, stream=True)
    client.send("ensemble", request_id="bad", stream=True, **FAILS_MIDWAY)
    said: dict[str, str] = {"good": "", "bad": ""}
    errors, final = [], False
    while not (final and errors):
        result, error = client.responses.get(timeout=PATIENCE)
        if error is not None:
            errors.append(error.message())
            continue
        response = result.get_response()
        final = final or response.parameters["triton_final_response"].bool_param
        said[response.id] += b"".join(result.as_numpy("text_output").reshape(-1)).decode() if response.outputs else ""
    assert len(errors) == 1
    assert "is left that the guide allows" in errors[0]
    assert_said_before_it_failed(said["bad"])
    assert said["good"] == client.ask("ensemble", text_input=FRANCE, max_tokens=30, stream=True).text() != ""


def test_text_with_newlines_and_colons_survives_the_framing_of_events(server: RunningServer) -> None:
    body = {"text_input": "data: x\n\ndata: y\n\n: z\n\n", "max_tokens": 12, "temperature": 0, "stream": True}
    whole = json.loads(
        post(server, "vllm_model/generate", body | {"stream": False, "exclude_input_in_output": True})[1]
    )
    _, answer = post(server, "vllm_model/generate_stream", body)
    events = [json.loads(line.removeprefix("data: ")) for line in answer.split("\n\n") if line]
    assert "".join(event["text_output"] for event in events) == whole["text_output"]


@pytest.mark.nightly
def test_an_entry_is_unloaded_while_a_stream_is_open_and_loaded_again(server: RunningServer, types: Types) -> None:
    """Triton Server lets the stream finish first."""
    client = Client(server, types)
    client.send("tensorrt_llm", **token_request([504], 30, streaming=True))
    client.responses.get(timeout=PATIENCE)
    with grpcclient.InferenceServerClient(server.grpc_url) as control:
        control.unload_model("tensorrt_llm")
        assert client.receive().column("finish_reason")[-1] == b"length"
        control.load_model("tensorrt_llm")
    again = Client(server, types)
    assert len(again.ask("tensorrt_llm", **token_request([504], 2)).column("output_ids")) == 3
    for each in (client, again):
        each.client.stop_stream()
    probe(server)
