"""How responses end: one final marker or one error, and nothing after it."""

import queue
import time
from typing import Any

import pytest
import tritonclient.grpc as grpcclient

from tests.server_fixture import RunningServer
from tests.triton_client import tensors

pytestmark = pytest.mark.server
ENDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "length": ("ensemble", {"text_input": "The capital of France is", "max_tokens": 3}),
    "whole": ("ensemble", {"text_input": "The capital of France is", "max_tokens": 3, "stream": False}),
    "stop": ("ensemble", {"text_input": "The capital of France is", "max_tokens": 9, "stop_words": ["."]}),
    "nothing": ("ensemble", {"text_input": "The capital of France is", "max_tokens": 9, "stop_words": [" Paris"]}),
    "eos": ("ensemble", {"text_input": "The capital of France is", "max_tokens": 9, "end_id": 7042}),
    "timeout": ("ensemble", {"text_input": "Once upon a time", "max_tokens": 900, "ignore_eos": True}),
    "refused": ("ensemble", {"text_input": "Hello", "max_tokens": -1}),
    "stop of nobody": ("inflight_batcher", {"stop": True, "input_ids": [0], "request_output_len": 1}),
}


@pytest.mark.parametrize("empty_final", [True, False])
def test_every_way_to_end_has_one_final_marker_or_one_error_and_nothing_after_it(
    server: RunningServer, empty_final: bool
) -> None:
    """All on one connection, so that a response too many would be seen before the next request's."""
    responses: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(callback=lambda result, error: responses.put((result, error)))
        for name, (model, fields) in ENDINGS.items():
            # Without the option Triton Server keeps a final response to itself if there is nothing in it.
            if name == "stop of nobody" and not empty_final:
                continue
            client.async_stream_infer(
                model,
                tensors({"stream": True} | fields if model == "ensemble" else fields),
                request_id=name,
                enable_empty_final_response=empty_final,
                timeout=400_000 if name == "timeout" else None,
            )
            last, reasons = False, []
            while not last:
                result, error = responses.get(timeout=60)
                assert (error is not None) == (name == "refused")
                if error is not None:
                    break
                response = result.get_response()
                assert response.id == name
                last = response.parameters["triton_final_response"].bool_param
                if result.as_numpy("finish_reason") is not None:
                    reasons.append(result.as_numpy("finish_reason").reshape(-1)[0].decode())
            expected = {"nothing": "stop", "whole": "length", "refused": "", "stop of nobody": ""}.get(name, name)
            assert "".join(reasons) == expected
        time.sleep(0.2)
        assert responses.empty()


@pytest.mark.nightly
def test_a_hundred_streams_one_after_the_other_on_one_connection_all_end(server: RunningServer) -> None:
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    def take(result: Any, error: Any) -> None:
        if error or result.get_response().parameters["triton_final_response"].bool_param:
            ended.put(str(error or result.get_response().id))

    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(callback=take)
        for number in range(100):
            asked = tensors({"text_input": f"Number {number}", "max_tokens": 2, "stream": True, "ignore_eos": True})
            client.async_stream_infer("ensemble", asked, request_id=str(number))
            assert ended.get(timeout=60) == str(number)
