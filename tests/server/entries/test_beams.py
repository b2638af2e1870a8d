"""A search over beams at every entry that takes a beam_width: transformers' beams, in TensorRT-LLM's shapes."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.reference import Reference
from tests.server.entries.client import FRANCE, ONCE, Client, Fields, flat, token_request

pytestmark = pytest.mark.server
NIGHTLY = pytest.mark.nightly
EOS, LENGTH = 2, 7


class Beams:
    """transformers' beams after a prompt, computed once for each width."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._known: dict[Any, tuple[list[list[int]], list[float]]] = {}

    @torch.inference_mode()
    def find(self, prompt: str, width: int, max_tokens: int = LENGTH, **options: Any) -> tuple[list[list[int]], Any]:
        key = prompt, width, max_tokens, *options.items()
        if key not in self._known:
            ids = torch.tensor([self._reference.prompt_ids(prompt)])
            out = self._reference.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=max_tokens,
                num_beams=width,
                num_return_sequences=width,
                do_sample=False,
                pad_token_id=EOS,
                return_dict_in_generate=True,
                output_scores=True,
                **{"length_penalty": 0.0, "early_stopping": True, **options},
            )
            rows = [cut(row) for row in out.sequences[:, ids.shape[1] :].tolist()]
            self._known[key] = rows, out.sequences_scores.tolist()
        return self._known[key]


def cut(row: list[int]) -> list[int]:
    """Up to its first end of sequence."""
    return row[: row.index(EOS) + 1] if EOS in row else row


@pytest.fixture(scope="module")
def beams(reference: Reference) -> Beams:
    return Beams(reference)


def text_request(**fields: Any) -> Fields:
    return {"text_input": FRANCE, "max_tokens": LENGTH, "exclude_input_in_output": True, **fields}


@pytest.mark.parametrize("entry", ["ensemble", "ensemble_uint32", pytest.param("tensorrt_llm_bls", marks=NIGHTLY)])
def test_a_text_entry_answers_with_a_text_for_each_beam(
    client: Client, reference: Reference, beams: Beams, entry: str
) -> None:
    expected = [reference.text(FRANCE, row) for row in beams.find(FRANCE, 3)[0]]
    reply = client.ask(entry, **text_request(beam_width=3))
    assert (reply.error, reply.finals) == ("", 1)
    (response,) = [each for each in reply.responses if each.get("text_output")]
    assert [each.decode() for each in flat(response["text_output"])] == expected
    assert len(set(expected)) == 3
    echoed = client.ask(entry, **text_request(beam_width=3, exclude_input_in_output=False))
    assert [each.decode() for each in echoed.column("text_output")] == [FRANCE + each for each in expected]


def test_tokens_and_log_probabilities_come_in_rows_one_for_each_beam(
    client: Client, reference: Reference, beams: Beams
) -> None:
    prompt = list(reference.prompt_ids(FRANCE))
    rows, scores = beams.find(FRANCE, 3)
    asked = token_request(prompt, LENGTH, beam_width=3, return_log_probs=True, end_id=EOS)
    (response,) = client.ask("tensorrt_llm", **asked).responses
    assert np.shape(response["output_ids"])[:2] == (1, 3)
    assert flat(response["sequence_length"]) == [len(prompt) + len(row) for row in rows]
    found = response["output_ids"][0]
    assert [row[: len(prompt) + len(beam)] for row, beam in zip(found, rows, strict=True)] == [
        prompt + beam for beam in rows
    ]
    assert flat(response["cum_log_probs"]) == pytest.approx(scores, abs=1e-3)
    assert [sum(row) for row in response["output_log_probs"][0]] == pytest.approx(scores, abs=1e-3)
    assert flat(response["num_output_tokens"]) == [sum(map(len, rows))]
    fewer = client.ask("tensorrt_llm", **asked, num_return_sequences=2, exclude_input_in_output=True)
    assert fewer.finals == 1
    assert [cut(row) for row in fewer.responses[0]["output_ids"][0]] == rows[:2]


def test_a_stop_string_ends_a_beam_and_is_cut_from_its_text(client: Client, beams: Beams, reference: Reference) -> None:
    texts = [reference.text(FRANCE, row) for row in beams.find(FRANCE, 3)[0]]
    word = texts[0].split()[1]
    reply = client.ask("ensemble", **text_request(beam_width=3, stop_words=[word]))
    assert all(word.encode() not in text for text in reply.column("text_output"))
    assert b"stop" in reply.column("finish_reason")


@pytest.mark.nightly
@pytest.mark.parametrize("early", [True, False, "never"])
@pytest.mark.parametrize("penalty", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("prompt", [FRANCE, ONCE, "Dear Sir or Madam,"])
def test_every_setting_finds_the_beams_of_transformers(
    client: Client, reference: Reference, beams: Beams, prompt: str, penalty: float, early: Any
) -> None:
    rows, scores = beams.find(prompt, 4, 24, length_penalty=penalty, early_stopping=early)
    asked = token_request(
        list(reference.prompt_ids(prompt)),
        24,
        beam_width=4,
        len_penalty=penalty,
        end_id=EOS,
        return_log_probs=True,
        exclude_input_in_output=True,
    )
    parameters = {"early_stopping": {True: 1, False: 0, "never": 2}[early]}
    (response,) = client.ask("tensorrt_llm", parameters=parameters, **asked).responses
    lengths = flat(response["sequence_length"])
    found = [row[:length] for row, length in zip(response["output_ids"][0], lengths, strict=True)]
    assert found == rows
    ranked = [total / length**penalty for total, length in zip(flat(response["cum_log_probs"]), lengths, strict=True)]
    # A score is the sum of the logarithms times the length to the power of -penalty, and so is its error.
    assert ranked == pytest.approx(scores, abs=1e-3 * 24 ** max(0.0, -penalty))


@pytest.mark.parametrize("entry", ["ensemble", pytest.param("tensorrt_llm", marks=NIGHTLY)])
def test_logits_of_the_prompt_come_with_the_last_response(client: Client, reference: Reference, entry: str) -> None:
    ids = list(reference.prompt_ids(FRANCE))
    asked = text_request(stream=True) if entry == "ensemble" else token_request(ids, 2)
    responses = client.ask(entry, **asked, return_context_logits=True).responses
    with torch.inference_mode():
        expected = reference.model(torch.tensor([ids])).logits[0].numpy()
    assert ["context_logits" in response for response in responses] == [False] * (len(responses) - 1) + [True]
    found = np.array(responses[-1]["context_logits"], np.float32)
    assert found.shape == (1, len(ids), expected.shape[1])
    assert np.abs(found[0] - expected).max() < 1e-3
