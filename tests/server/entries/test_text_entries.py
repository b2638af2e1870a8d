"""The text entries with TensorRT-LLM's names."""

import itertools
import json

import numpy as np
import pytest

from tests.reference import Reference
from tests.server.entries.client import FRANCE, Client, post
from tests.server_fixture import RunningServer

pytestmark = pytest.mark.server


def test_llmapi_streams_the_whole_text_so_far(client: Client, reference: Reference) -> None:
    asked = {"text_input": FRANCE, "sampling_param_max_tokens": 6, "return_finish_reason": True}
    answer = FRANCE + reference.text(FRANCE, reference.greedy(FRANCE, 6))
    whole = client.ask("llmapi", **asked)
    assert (whole.text(), whole.column("finish_reason")) == (answer, [b"length"])
    texts = [text.decode() for text in client.ask("llmapi", **asked, streaming=True).column("text_output")]
    assert texts[-1] == answer
    assert len(texts) > 1
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    bare = client.ask("llmapi", **asked, sampling_param_exclude_input_from_output=True, sampling_param_stop=["."])
    assert (bare.text(), bare.column("finish_reason")) == (" Paris", [b"stop"])
    assert "sampling_param_best_of: 2 is not supported" in client.ask("llmapi", **asked, sampling_param_best_of=2).error


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls", "ensemble_uint32"])
def test_the_text_entries_with_tensorrt_llms_names_give_one_text(
    client: Client, reference: Reference, model: str
) -> None:
    asked = {"text_input": FRANCE, "max_tokens": 6, "top_k": 1}
    answer = reference.text(FRANCE, reference.greedy(FRANCE, 6))
    whole = client.ask(model, **asked)
    assert whole.text() == FRANCE + answer
    assert np.shape(whole.responses[0]["text_output"]) == (1,), "clients decode each element of the first dimension"
    assert client.ask(model, **asked, stream=True).text() == answer
    assert client.ask(model, **asked, exclude_input_in_output=True, stop_words=["."]).text() == " Paris"


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_the_tutorials_curl_line_is_answered(server: RunningServer, model: str) -> None:
    body = {"text_input": FRANCE, "max_tokens": 4, "bad_words": "", "stop_words": "", "pad_id": 2, "end_id": 2}
    status, answer = post(server, f"{model}/generate", body)
    assert (status, json.loads(answer)["text_output"].startswith(FRANCE + " Paris")) == (200, True)
