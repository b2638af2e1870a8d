"""The openai package, unchanged, before a real server: the answers are the ensemble's own, errors are raised."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from tokenizers import Tokenizer

from tests.gateway.conftest import MAX_SEQ_LEN, QUEUE
from tests.gateway.gateway_process import Gateway, running_gateway
from tests.server_fixture import RunningServer
from tests.step_trace import num_steps, wait_until_quiet
from tests.triton_client import Answer, ask

pytestmark = pytest.mark.server
MODEL = "SmolLM2-135M-Instruct"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
TEMPLATED = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
)
PROMPT = "List the numbers: one, two, three,"
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0}
DRAWN: dict[str, Any] = {"model": MODEL, "max_tokens": 24, "temperature": 1.0, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def tokenizer(smollm2_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))


def own(server: RunningServer, prompt: str, **fields: Any) -> Answer:
    """The ensemble's own answer, without the gateway."""
    answer = ask(server.grpc_url, text_input=prompt, exclude_input_in_output=True, **fields)
    assert answer.error == ""
    return answer


def test_a_chat_is_answered_as_the_ensemble_answers_the_templated_prompt(
    server: RunningServer, client: openai.OpenAI, tokenizer: Tokenizer
) -> None:
    expected = own(server, TEMPLATED, max_tokens=24)
    whole = client.chat.completions.create(messages=QUESTION, max_completion_tokens=24, **GREEDY)
    assert "Paris" in whole.choices[0].message.content
    assert whole.choices[0].message.content == expected.text
    assert whole.choices[0].finish_reason == {"eos": "stop", "length": "length"}[expected.reason]
    assert whole.usage.prompt_tokens == len(tokenizer.encode(TEMPLATED).ids)
    assert whole.usage.completion_tokens == expected.num_output
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert whole._request_id == whole.id

    chunks = list(
        client.chat.completions.create(
            messages=QUESTION, max_completion_tokens=24, stream=True, stream_options={"include_usage": True}, **GREEDY
        )
    )
    *content, last = chunks
    assert len(content) > 2
    assert "".join(chunk.choices[0].delta.content or "" for chunk in content) == expected.text
    assert [c.choices[0].finish_reason for c in content][-2:] == [None, whole.choices[0].finish_reason]
    assert last.usage == whole.usage


def test_a_completion_is_the_ensembles_own_text_whole_streamed_and_echoed(
    server: RunningServer, client: openai.OpenAI, tokenizer: Tokenizer
) -> None:
    expected = own(server, PROMPT, max_tokens=16)
    whole = client.completions.create(prompt=PROMPT, echo=True, **GREEDY)
    assert whole.choices[0].text == PROMPT + expected.text
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage.prompt_tokens == len(tokenizer.encode(PROMPT).ids)
    assert whole.usage.completion_tokens == len(tokenizer.encode(expected.text).ids) == 16
    streamed = client.completions.create(prompt=PROMPT, stream=True, **GREEDY)
    assert "".join(chunk.choices[0].text for chunk in streamed) == expected.text
    several = client.completions.create(prompt=[PROMPT, "The capital of France is"], **GREEDY)
    assert several.choices[0].text == expected.text
    assert several.choices[1].text.startswith(" Paris.")


def test_several_choices_of_one_seed_are_those_of_the_ensemble_streamed_too(
    server: RunningServer, client: openai.OpenAI
) -> None:
    fields = {"max_tokens": 24, "temperature": 1.0, "seed": 7, "num_return_sequences": 2, "ignore_eos": True}
    expected = own(server, PROMPT, stream=True, **fields).by_sequence
    assert expected[0] != expected[1]
    whole = client.completions.create(prompt=PROMPT, n=2, seed=7, **DRAWN)
    assert {choice.index: choice.text for choice in whole.choices} == expected
    assert whole.usage.completion_tokens == 48
    streamed = {0: "", 1: ""}
    for chunk in client.completions.create(prompt=PROMPT, n=2, seed=7, stream=True, **DRAWN):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == expected


def test_without_a_seed_answers_differ_and_top_k_one_is_greedy(server: RunningServer, client: openai.OpenAI) -> None:
    texts = {client.completions.create(prompt=PROMPT, **DRAWN).choices[0].text for _ in range(3)}
    assert len(texts) > 1
    likeliest = client.completions.create(prompt=PROMPT, model=MODEL, extra_body={"top_k": 1, "priority": 1})
    assert likeliest.choices[0].text == own(server, PROMPT, max_tokens=16).text


def test_a_stop_string_cuts_the_text(server: RunningServer, client: openai.OpenAI) -> None:
    full = own(server, PROMPT, max_tokens=16).text
    stop = full[9:14]
    for words in (stop, [stop, "never to be found"]):
        stopped = client.completions.create(prompt=PROMPT, stop=words, **GREEDY).choices[0]
        assert (stopped.text, stopped.finish_reason) == (full[: full.index(stop)], "stop")


def test_an_answer_keeps_to_a_json_schema_and_a_bad_one_is_refused_by_name(client: openai.OpenAI) -> None:
    def chat(schema: dict[str, Any]) -> str:
        wish = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
        asked = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 30, "response_format": wish}
        choice = client.chat.completions.create(**GREEDY | asked).choices[0]
        assert choice.finish_reason == "stop"
        return choice.message.content

    city = {"type": "object", "properties": {"city": {"enum": ["Rome", "Lyon"]}}, "required": ["city"]}
    assert json.loads(chat({**city, "additionalProperties": False}))["city"] in ("Rome", "Lyon")
    with pytest.raises(openai.BadRequestError, match="not a valid guide") as refusal:
        chat({"type": "objec"})
    assert refusal.value.param == "response_format"


@pytest.mark.nightly
def test_a_chat_without_a_limit_takes_what_room_there_is(client: openai.OpenAI, tokenizer: Tokenizer) -> None:
    river = [{"role": "user", "content": "river " * (MAX_SEQ_LEN - 60)}]
    whole = client.chat.completions.create(messages=river, extra_body={"ignore_eos": True}, **GREEDY)
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage.total_tokens == MAX_SEQ_LEN


def test_the_asynchronous_client_gets_the_same(server: RunningServer, gateway: Gateway) -> None:
    expected = own(server, PROMPT, max_tokens=16).text

    async def several() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:

            async def streamed() -> str:
                stream = await client.completions.create(prompt=PROMPT, stream=True, **GREEDY)
                return "".join([chunk.choices[0].text async for chunk in stream])

            async def whole() -> str:
                return (await client.completions.create(prompt=PROMPT, **GREEDY)).choices[0].text

            assert [model.id async for model in client.models.list()] == [MODEL]
            return list(await asyncio.gather(streamed(), whole(), streamed(), whole()))

    assert asyncio.run(several()) == [expected] * 4


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "error", "param", "message"),
    [
        ({"temperature": -1}, openai.BadRequestError, "temperature", "-1.0 is out of range"),
        ({"extra_body": {"top_k": -1}}, openai.BadRequestError, "top_k", "greater than or equal to 0"),
        ({"extra_body": {"min_p": 2}}, openai.BadRequestError, "min_p", "2.0 is out of range"),
        ({"n": 65}, openai.BadRequestError, "n", "65 is out of range, allowed is [1, 64]"),
        ({"stop": ["x"] * 33}, openai.BadRequestError, "stop", "33 words, at most 32"),
        ({"user": "x" * 257}, openai.BadRequestError, "user", "257 bytes, at most 256"),
        ({"extra_body": {"priority": 9}}, openai.BadRequestError, "priority", "9 is out of range"),
        ({"extra_headers": {"x-priority": "-1"}}, openai.BadRequestError, "x-priority", "-1 is out of range"),
        ({"max_tokens": 5000}, openai.BadRequestError, "max_tokens", f"max_seq_len is {MAX_SEQ_LEN}"),
        ({"prompt": ""}, openai.BadRequestError, "prompt", "holds no token"),
        ({"suffix": "x"}, openai.BadRequestError, "suffix", "not supported"),
        ({"model": "gpt-9"}, openai.NotFoundError, "model", "no such model"),
    ],
    ids=str,
)
def test_an_error_is_raised_as_the_client_knows_it(
    client: openai.OpenAI,
    fields: dict[str, Any],
    error: type[openai.APIStatusError],
    param: str,
    message: str,
    stream: bool,
) -> None:
    with pytest.raises(error) as raised:
        client.completions.create(**{"prompt": PROMPT, **GREEDY, **fields}, stream=stream)
    assert raised.value.param == param
    assert message in raised.value.message
    for forbidden in ("Traceback", "File ", "/tmp", "ensemble"):
        assert forbidden not in raised.value.message


def test_many_refusals_among_answers_leave_the_server_unhurt(client: openai.OpenAI) -> None:
    def one(number: int) -> str:
        wrong: list[dict[str, Any]] = [{"prompt": ""}, {"temperature": -1}, {"n": 65}, {}]
        try:
            fields = {"prompt": "Hi", "max_tokens": 1, **GREEDY, **wrong[number % 4]}
            return client.completions.create(**fields, stream=False).choices[0].text
        except openai.BadRequestError as error:
            return error.param

    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(one, range(200)))
    assert said[0::4] == ["prompt"] * 50
    assert said[1::4] == ["temperature"] * 50
    assert said[2::4] == ["n"] * 50
    assert len(set(said[3::4])) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_generation(
    client: openai.OpenAI, gateway: Gateway, trace_file: Path, stream: bool
) -> None:
    """The engine comes to rest long before the answer's length; it checks its pool whenever it runs empty."""
    before, length = num_steps(trace_file), MAX_SEQ_LEN - 100
    asked = {"prompt": PROMPT, "max_tokens": length, "extra_body": {"ignore_eos": True}, **GREEDY}
    if stream:
        chunks = client.completions.create(stream=True, **asked)
        next(iter(chunks))
        chunks.close()
    else:
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=1.0).completions.create(**asked)
    assert 0 < wait_until_quiet(trace_file, 1.0) - before < length / 2
    assert (
        client.completions.create(prompt="The capital of France is", max_tokens=2, **GREEDY).choices[0].text
        == " Paris."
    )


def test_a_full_queue_is_the_clients_rate_limit_error(client: openai.OpenAI, gateway: Gateway) -> None:
    """As many as run, are looked ahead over or wait in the queue are answered; what is refused can be told apart."""
    hold: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 48, "extra_body": {"ignore_eos": True}, **GREEDY}
    count, refused, answered = 8 * QUEUE, [], []
    lock = threading.Lock()

    def one(_: int) -> None:
        try:
            text = client.completions.create(**hold).choices[0].text
        except openai.RateLimitError as error:
            with lock:
                refused.append(error)
        else:
            with lock:
                answered.append(text)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(one, range(count)))
    assert len(refused) + len(answered) == count
    assert len(answered) >= QUEUE
    assert refused
    assert {error.code for error in refused} == {"queue_full"}
    assert all(error.response.headers["retry-after"] == "1" for error in refused)
    assert len(set(answered)) == 1


def test_health_and_a_server_that_ends(smollm2_dir: Path, gateway: Gateway) -> None:
    assert gateway.get("/health").json == {"status": "ready"}
    with running_gateway("127.0.0.1:1") as alone:
        got = alone.get("/health")
        assert (got.status, json.loads(got.text)["error"]["code"]) == (503, "not_ready")
        client = openai.OpenAI(base_url=f"{alone.url}/v1", api_key="none", max_retries=0)
        with pytest.raises(openai.InternalServerError, match="not ready"):
            client.completions.create(prompt=PROMPT, **GREEDY)
