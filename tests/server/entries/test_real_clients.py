"""Other people's clients, unchanged, each in its own environment, against a real server.

Making the environments takes minutes, so those that need one run with TESTS_NIGHTLY=1.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.client_environments import CLIENTS, run_client
from tests.reference import Reference
from tests.server.entries.client import FRANCE, Client, Fields
from tests.server_fixture import RunningServer

pytestmark = pytest.mark.server


@pytest.mark.nightly
def test_langchain_nvidia_trt_gets_whole_answers_and_streams(server: RunningServer, reference: Reference) -> None:
    """It sends counts as UINT32, which the other configurations refuse before a model sees them."""
    answer = reference.text(FRANCE, reference.greedy(FRANCE, 8))
    said = run_client(
        "langchain", "use_langchain", url=server.grpc_url, model="ensemble_uint32", tokens=8, prompt=FRANCE, stop=["!"]
    )
    assert said["whole"] == said["stopped"] == FRANCE + answer
    assert "".join(said["pieces"]) == answer
    assert len(said["pieces"]) > 1


@pytest.mark.nightly
def test_llama_index_gets_an_answer_and_loads_a_model_that_is_there(
    server: RunningServer, reference: Reference
) -> None:
    """It takes one response for one token, and stops after as many as it asked for, less one."""
    said = run_client("llama_index", "use_llama_index", url=server.grpc_url, tokens=8, prompt=FRANCE)
    answer = reference.text(FRANCE, reference.greedy(FRANCE, 8))
    assert answer.startswith(said["answer"])
    assert said["answer"].startswith(" Paris")
    assert said["chat"]


def payloads(converter: str, model: str, **options: Any) -> list[Fields]:
    defaults = {"streaming": True, "tokens": 0, "deterministic": False, "extra": {}}
    texts = [FRANCE, "One, two, three,"]
    made = run_client(
        "genai_perf", "use_genai_perf", converter=converter, model=model, texts=texts, **defaults | options
    )
    return [{name: value for name, value in row.items() if name != "model"} for row in made["data"]]


@pytest.mark.nightly
@pytest.mark.parametrize("streaming", [True, False])
def test_what_genai_perf_builds_for_tensorrtllm_is_answered(client: Client, streaming: bool) -> None:
    extra = {"temperature": 0.0, "ignore_eos": True}
    for asked in payloads("tensorrtllm", "ensemble", streaming=streaming, tokens=7, extra=extra):
        reply = client.ask("ensemble", **asked)
        assert (reply.error, reply.finals) == ("", 1)
        assert sum(reply.column("num_output_tokens")) == 7
        assert (len(reply.responses) > 1) == streaming


@pytest.mark.nightly
def test_what_genai_perf_builds_with_a_fixed_number_of_tokens_gives_that_number(client: Client) -> None:
    """It asks for it by ``min_length``, the older name of ``min_tokens``."""
    for asked in payloads("tensorrtllm", "ensemble", tokens=9, deterministic=True):
        assert asked["min_length"] == asked["max_tokens"] == [9]
        assert sum(client.ask("ensemble", **asked).column("num_output_tokens")) == 9
    for asked in payloads("vllm", "vllm_model", tokens=9, deterministic=True):
        assert json.loads(asked["sampling_parameters"][0]) == {"max_tokens": "9", "min_tokens": "9"}
        reply = client.ask("vllm_model", **asked, return_num_output_tokens=True)
        assert (reply.error, sum(reply.column("num_output_tokens"))) == ("", 9)


@pytest.mark.nightly
@pytest.mark.parametrize("streaming", [True, False])
def test_what_genai_perf_builds_for_vllm_is_answered(client: Client, streaming: bool) -> None:
    for asked in payloads("vllm", "vllm_model", streaming=streaming, tokens=7):
        assert json.loads(asked["sampling_parameters"][0]) == {"max_tokens": "7"}
        reply = client.ask("vllm_model", **asked)
        assert (reply.error, reply.finals) == ("", 1)
        assert (len(reply.responses) > 1) == streaming


def test_what_is_sent_to_the_token_model_by_hand_as_genai_perf_does_for_an_engine_is_answered(client: Client) -> None:
    """Its converter for engines needs a tokenizer from a hub; the payload is the one that it writes."""
    asked = {
        "input_ids": [504, 3575],
        "input_lengths": [2],
        "request_output_len": [6],
        "streaming": [True],
        "end_id": [2],
    }
    assert len(client.ask("tensorrt_llm", **asked).column("output_ids")) == 6


def test_tritonclient_over_http_sees_all_entries_and_is_told_which_door_to_take(server: RunningServer) -> None:
    with httpclient.InferenceServerClient(server.http_url.removeprefix("http://")) as http:
        for model in ("tensorrt_llm", "tensorrt_llm_bls", "vllm_model", "llmapi", "ensemble_uint32"):
            assert http.is_model_ready(model)
            names = [each["name"] for each in http.get_model_metadata(model)["inputs"]]
            assert len(set(names)) == len(names) > 5
        tensor = httpclient.InferInput("text_input", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([FRANCE.encode()], dtype=np.object_))
        with pytest.raises(InferenceServerException, match="decoupled"):
            http.infer("vllm_model", [tensor])


def test_each_client_is_pinned_to_one_version_of_everything() -> None:
    pinned = [line.split("==") for name in ("langchain", "llama_index", "genai_perf") for line in lines(name)]
    assert len(pinned) > 10
    assert all(len(parts) == 2 for parts in pinned)


def lines(client: str) -> list[str]:
    return [line for line in Path(CLIENTS / f"{client}.txt").read_text().splitlines() if line and line[0] != "#"]
