"""Log-probabilities and logit_bias through the gateway before a real server, against the ensemble's own figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest

from tests.gateway.gateway_process import Gateway
from tests.gateway.test_openai_client import GREEDY, PROMPT, QUESTION, TEMPLATED, own
from tests.server_fixture import RunningServer
from tests.triton_client import collect

pytestmark = [pytest.mark.server, pytest.mark.nightly]
TOP = 3
TOKENS = 5
PARIS, VOCABULARY = 7042, 49152


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def expected(server: RunningServer, prompt: str, **fields: Any) -> dict[str, Any]:
    """The ensemble's own answer with its figures, flat."""
    asked = {"text_input": prompt, "max_tokens": TOKENS, "exclude_input_in_output": True, "return_log_probs": True}
    (whole,) = collect(server.grpc_url, "ensemble", **asked, num_log_probs=TOP, **fields)
    return {
        "text": whole["text_output"].reshape(-1)[0].decode(),
        "log_probs": whole["output_log_probs"].reshape(-1).tolist(),
        "top": whole["top_log_probs"].reshape(-1, TOP).tolist(),
    }


def check_tokens(tokens: Any, said: str, wanted: dict[str, Any]) -> None:
    assert b"".join(bytes(each.bytes) for each in tokens).decode() == said == wanted["text"]
    assert [each.logprob for each in tokens] == pytest.approx(wanted["log_probs"], abs=1e-5)
    for each, top in zip(tokens, wanted["top"], strict=True):
        assert [one.logprob for one in each.top_logprobs] == pytest.approx(top, abs=1e-5)
        assert each.token == each.top_logprobs[0].token, "greedy takes the likeliest"
        assert each.logprob <= 0


def test_a_chats_log_probabilities_are_the_ensembles_whole_and_streamed(
    server: RunningServer, client: openai.OpenAI
) -> None:
    wanted = expected(server, TEMPLATED)
    asked = {"messages": QUESTION, "max_tokens": TOKENS, "logprobs": True, "top_logprobs": TOP, **GREEDY}
    choice = client.chat.completions.create(**asked).choices[0]
    check_tokens(choice.logprobs.content, choice.message.content, wanted)
    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**asked, stream=True)]
    tokens = [each for chunk in chunks if chunk.logprobs for each in chunk.logprobs.content]
    check_tokens(tokens, "".join(chunk.delta.content or "" for chunk in chunks), wanted)
    alone = client.chat.completions.create(**{**asked, "top_logprobs": 0}).choices[0].logprobs.content
    assert [each.top_logprobs for each in alone] == [[]] * len(alone)
    assert client.chat.completions.create(messages=QUESTION, max_tokens=2, **GREEDY).choices[0].logprobs is None


def test_a_completions_log_probabilities_are_the_ensembles_and_say_where_each_token_stands(
    server: RunningServer, client: openai.OpenAI
) -> None:
    wanted = expected(server, PROMPT)
    asked = {"prompt": PROMPT, "max_tokens": TOKENS, "logprobs": TOP, **GREEDY}
    choice = client.completions.create(**asked).choices[0]
    shown = choice.logprobs
    assert "".join(shown.tokens) == choice.text == wanted["text"]
    assert shown.token_logprobs == pytest.approx(wanted["log_probs"], abs=1e-5)
    assert shown.text_offset == [len("".join(shown.tokens[:place])) for place in range(TOKENS)]
    for token, top, values in zip(shown.tokens, shown.top_logprobs, wanted["top"], strict=True):
        assert sorted(top.values(), reverse=True) == pytest.approx(values, abs=1e-5)
        assert token in top
    streamed = [chunk.choices[0].logprobs for chunk in client.completions.create(**asked, stream=True)]
    assert [value for each in streamed if each for value in each.token_logprobs] == shown.token_logprobs


def test_a_logit_bias_favours_and_forbids_a_token_as_the_ensembles_own_bias_does(
    server: RunningServer, client: openai.OpenAI
) -> None:
    prompt = "The capital of France is"

    def text(bias: dict[str, float]) -> str:
        asked = {"prompt": prompt, "max_tokens": 6, "logit_bias": bias, **GREEDY}
        return client.completions.create(**asked).choices[0].text

    assert text({}).startswith(" Paris")
    assert text({str(PARIS): 100}) == " Paris" * 6
    without = text({str(PARIS): -100})
    assert " Paris" not in without
    weights = np.zeros(VOCABULARY, np.float32)
    weights[PARIS] = -100
    assert own(server, prompt, max_tokens=6, embedding_bias=weights).text == without
    for bad in ({str(VOCABULARY): 1}, {"-1": 1}, {"Paris": 1}):
        with pytest.raises(openai.BadRequestError, match="logit_bias: a key is no token id") as refusal:
            text(bad)
        assert refusal.value.param == "logit_bias"


def test_a_bias_does_not_change_the_probabilities_that_are_told(server: RunningServer, client: openai.OpenAI) -> None:
    """They are of the model's own distribution, so a forced token has the small one that it had."""
    asked = {"prompt": "The capital of France is", "max_tokens": 1, "logprobs": 1, **GREEDY}
    plain = client.completions.create(**asked).choices[0].logprobs
    forced = client.completions.create(**asked, logit_bias={"100": 100}).choices[0].logprobs
    assert forced.token_logprobs[0] < plain.token_logprobs[0] - 1
    assert max(forced.top_logprobs[0].values()) == pytest.approx(plain.token_logprobs[0], abs=1e-5)
