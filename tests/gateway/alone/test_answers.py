"""What comes back: answers, whole and streamed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.gateway.alone.asking import NAME, chat, text
from tests.gateway.fake_triton import FakeTriton, hello, reply
from tests.gateway.gateway_process import Gateway


def test_a_whole_chat_answer(triton: FakeTriton, gateway: Gateway) -> None:
    triton.answer = hello
    answer = chat(gateway)
    content = answer.json
    assert content["id"].startswith("chatcmpl-")
    assert answer.headers["x-request-id"] == content["id"] == triton.asked[-1].id
    assert abs(content["created"] - time.time()) < 60
    assert (content["object"], content["model"]) == ("chat.completion", NAME)
    assert content["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
        }
    ]
    assert content["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}


def test_a_streamed_chat_answer(triton: FakeTriton, gateway: Gateway) -> None:
    triton.answer = hello
    answer = chat(gateway, stream=True, stream_options={"include_usage": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, last = answer.events
    deltas = [(c["choices"][0]["delta"], c["choices"][0]["finish_reason"]) for c in chunks]
    assert deltas == [
        ({"role": "assistant", "content": ""}, None),
        ({"content": "Hel"}, None),
        ({"content": "lo"}, "length"),
    ]
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert all(c["usage"] is None for c in chunks)
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 10)
    assert all("usage" not in chunk for chunk in chat(gateway, stream=True).events)


@pytest.mark.parametrize("stream", [False, True])
def test_several_prompts_with_several_choices_each_are_numbered_through(
    triton: FakeTriton, gateway: Gateway, stream: bool
) -> None:
    def answer(request: Any) -> Iterator[Any]:
        prompt = request.inputs[0].contents.bytes_contents[0].decode()
        yield reply(f"{prompt}1", index=1)
        yield reply(f"{prompt}0", "eos", index=0)
        yield reply("!", "stop", index=1, final=True)

    triton.answer = answer
    got = text(gateway, prompt=["a", "b"], n=2, stream=stream, echo=True)
    chunks = [c for event in (got.events if stream else [got.json]) for c in event["choices"]]
    texts = {index: "".join(c["text"] for c in chunks if c["index"] == index) for index in range(4)}
    assert texts == {0: "aa0", 1: "aa1!", 2: "bb0", 3: "bb1!"}
    assert {c["finish_reason"] for c in chunks} == {"stop"} | ({None} if stream else set())
    if not stream:
        assert got.json["usage"] == {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


def with_log_probs(tokens: list[int]) -> Any:
    """A response per token; the alternatives of each are itself and token 5."""

    def answer(_: Any) -> Iterator[Any]:
        for at, token in enumerate(tokens):
            details = {
                "log_prob_ids": np.array([[token]]), "output_log_probs": np.array([[-0.5 - at]]),
                "top_log_prob_ids": np.array([[token, 5]]), "top_log_probs": np.array([[-0.5 - at, -3.0]]),
            }  # fmt: skip
            last = at == len(tokens) - 1
            yield reply("x", "length" if last else "", final=last, **details)

    return answer


def test_log_probabilities_in_both_forms(triton: FakeTriton, gateway: Gateway, smollm2_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    ids = tokenizer.encode(" Paris 🦜.").ids
    assert len(ids) > 4, "the parrot is several tokens, none of which is a character"
    other = tokenizer.decode([5], skip_special_tokens=False)
    triton.answer = with_log_probs(ids)
    entries = chat(gateway, logprobs=True, top_logprobs=2).json["choices"][0]["logprobs"]["content"]
    assert (entries[0]["token"], entries[0]["logprob"], entries[1]["logprob"]) == (" Paris", -0.5, -1.5)
    assert bytes(b for entry in entries for b in entry["bytes"]).decode() == " Paris 🦜."
    alternatives = [{k: top[k] for k in ("token", "logprob")} for top in entries[0]["top_logprobs"]]
    assert alternatives == [{"token": " Paris", "logprob": -0.5}, {"token": other, "logprob": -3.0}]
    streamed = [c for e in chat(gateway, logprobs=True, top_logprobs=2, stream=True).events for c in e["choices"]]
    assert [entry for c in streamed if c["logprobs"] for entry in c["logprobs"]["content"]] == entries

    whole = text(gateway, logprobs=2).json["choices"][0]["logprobs"]
    assert whole["tokens"][0] == " Paris"
    assert whole["token_logprobs"] == [-0.5 - at for at in range(len(ids))]
    assert whole["text_offset"][:2] == [0, len(" Paris")]
    assert whole["text_offset"][-1] == len(" Paris 🦜")
    assert any(token.startswith("bytes:\\x") for token in whole["tokens"])
    assert whole["top_logprobs"][0] == {" Paris": -0.5, other: -3.0}
    parts = [e["choices"][0]["logprobs"] for e in text(gateway, logprobs=2, stream=True).events]
    assert [offset for part in parts for offset in part["text_offset"]] == whole["text_offset"]
