"""Every wish about sampling, on a tiny model through the whole engine: what transformers generates on the same weights,
and the same again whatever happens to the sequence."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from backend.endings import FinishReason
from backend.engine import Engine
from backend.logit_bias import LogitBias
from backend.request import Sequence
from tests.engine.engines import finish, preempted_twice, request
from tests.model.tiny_models import Saved

PROMPT = tuple((7 * n * n + 3 * n + 5) % 101 for n in range(19))
OUTPUT = 20
NO_ENDS = {"eos_token_id": None, "pad_token_id": 0}


def alone(engine: Engine, prompt: tuple[int, ...] = PROMPT, **sampling: Any) -> list[int]:
    (output,) = finish(engine, engine.add(request(prompt, OUTPUT, **sampling)))
    return output


def generated(saved: Saved, **options: Any) -> list[int]:
    ids = torch.tensor([PROMPT])
    options = {"max_new_tokens": OUTPUT, "do_sample": False, **NO_ENDS, **options}
    with torch.inference_mode():
        out = saved.oracle.generate(ids, attention_mask=torch.ones_like(ids), **options)
    return out[0, len(PROMPT) :].tolist()


@dataclass
class Wish:
    """ours: fields of SamplingParams. theirs: arguments of transformers' generate."""

    ours: dict[str, Any]
    theirs: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def plain(saved: Saved) -> list[int]:
    return generated(saved)


@pytest.fixture(scope="module")
def wishes(plain: list[int]) -> dict[str, Wish]:
    one, pair, three = [plain[1]], plain[4:6], plain[8:11]
    bias = {plain[0]: -4.0, plain[3]: 2.0, 17: 1.5}
    return {
        "repetition": Wish({"repetition_penalty": 1.6}, {"repetition_penalty": 1.6}),
        "bad word": Wish({"bad_words": (tuple(one),)}, {"bad_words_ids": [one]}),
        "bad words": Wish({"bad_words": (tuple(pair), tuple(three))}, {"bad_words_ids": [pair, three]}),
        "bias": Wish(
            {"logit_bias": LogitBias.of(bias.items())}, {"sequence_bias": [[[t], w] for t, w in bias.items()]}
        ),
        "least": Wish(
            {"min_tokens": 12, "end_ids": frozenset(plain)}, {"min_new_tokens": 12, "eos_token_id": list(set(plain))}
        ),
    }


NAMES = ["repetition", "bad word", "bad words", "bias", "least"]


@pytest.mark.parametrize("name", NAMES)
def test_greedy_texts_are_transformers(name: str, wide: Engine, saved: Saved, wishes: dict, plain: list[int]) -> None:
    output = alone(wide, **wishes[name].ours)
    assert output == generated(saved, **wishes[name].theirs)
    assert output != plain
    assert len(output) >= 12


def test_presence_and_frequency_penalties_are_those_of_a_hand_count(wide: Engine, saved: Saved) -> None:
    tokens, changed = list(PROMPT), 0
    for _ in range(OUTPUT):
        logits = saved.logits(tokens)[-1].clone()
        best = int(logits.argmax())
        for token in set(tokens[len(PROMPT) :]):
            logits[token] -= 0.9 + 0.7 * tokens[len(PROMPT) :].count(token)
        tokens.append(int(logits.argmax()))
        changed += tokens[-1] != best
    assert alone(wide, presence_penalty=0.9, frequency_penalty=0.7) == tokens[len(PROMPT) :]
    assert changed > 0
    assert alone(wide, presence_penalty=0.5) != alone(wide, frequency_penalty=0.5)


ALL_AT_ONCE = {"repetition_penalty": 1.2, "presence_penalty": 0.4, "frequency_penalty": 0.3, "min_tokens": 6}
SEEDED = {"temperature": 0.9, "top_p": 0.9, "seed": 11}
DETAILED = {"log_probs": True, "top_log_probs": 3}


def details_of(sequence: Sequence) -> list[Any]:
    assert sequence.details is not None
    return list(sequence.details)


def test_log_probabilities_are_of_the_models_own_distribution(wide: Engine, saved: Saved) -> None:
    """Before penalties, temperature and filters; the alternatives are the model's likeliest."""
    asked = wide.add(request(PROMPT, OUTPUT, **ALL_AT_ONCE, **SEEDED, **DETAILED, generation_logits=True))
    (output,) = finish(wide, asked)
    logits = saved.logits([*PROMPT, *output])[len(PROMPT) - 1 : -1]
    expected = torch.log_softmax(logits, dim=-1)
    details = details_of(asked)
    chosen = torch.tensor([detail.log_prob for detail in details])
    torch.testing.assert_close(chosen, expected.gather(1, torch.tensor(output)[:, None])[:, 0], atol=1e-4, rtol=1e-4)
    best = expected.topk(3)
    assert [[token for token, _ in detail.top] for detail in details] == best.indices.tolist()
    found = torch.tensor([[value for _, value in detail.top] for detail in details])
    torch.testing.assert_close(found, best.values, atol=1e-4, rtol=1e-4)
    raw = torch.stack([torch.frombuffer(bytearray(detail.logits), dtype=torch.float32) for detail in details])
    torch.testing.assert_close(raw, logits, atol=1e-3, rtol=1e-4)
    assert len(set(chosen.tolist())) > OUTPUT // 2
    assert (chosen <= 0).all()


@pytest.mark.parametrize("at", [0, 1, 4, 7])
@pytest.mark.parametrize("sampling", [{}, SEEDED], ids=["greedy", "seeded"])
def test_a_preempted_sequence_says_what_it_would_have_said_and_as_likely(
    narrow: Engine, wishes: dict, at: int, sampling: dict
) -> None:
    asked = ALL_AT_ONCE | wishes["bad words"].ours | wishes["bias"].ours | DETAILED | sampling
    undisturbed = narrow.add(request(PROMPT, OUTPUT, level=3, **asked))
    (expected,) = finish(narrow, undisturbed)
    low = preempted_twice(narrow, narrow.add(request(PROMPT, OUTPUT, level=3, **asked)), at, repetition_penalty=1.5)
    assert low.num_preemptions == 2
    assert list(low.output) == expected
    ours, theirs = details_of(low), details_of(undisturbed)
    assert len(ours) == len(expected)
    assert [one.log_prob for one in ours] == pytest.approx([one.log_prob for one in theirs], abs=1e-5)
    assert [[token for token, _ in one.top] for one in ours] == [[token for token, _ in one.top] for one in theirs]


def test_neighbours_cached_prefixes_and_chunks_change_nothing(wide: Engine, wishes: dict) -> None:
    """All wishes side by side, each text that of its lone run; prompts of more than a chunk; then all again, cached."""
    asked = [wish.ours for wish in wishes.values()] + [SEEDED | ALL_AT_ONCE, {"presence_penalty": 1.0}, {}, DETAILED]
    expected = [alone(wide, **one) for one in asked]
    hits = wide.scheduler.residency.hit_tokens
    together = finish(wide, *[wide.add(request(PROMPT, OUTPUT, **one)) for one in asked])
    assert together == expected
    assert wide.scheduler.residency.hit_tokens > hits


def test_who_asks_for_no_details_has_none(wide: Engine) -> None:
    beside = wide.add(request(PROMPT, 4))
    finish(wide, beside, wide.add(request(PROMPT, 4, **DETAILED)))
    assert beside.details is None


def test_a_stop_sequence_ends_the_output_when_it_is_whole_and_not_before_the_least_length(
    wide: Engine, plain: list[int]
) -> None:
    words = (tuple(plain[:3]), (plain[1], 100))
    stopped = wide.add(request(PROMPT, OUTPUT, stop_sequences=words))
    (output,) = finish(wide, stopped)
    assert output == plain[:3]
    assert stopped.finish_reason is FinishReason.STOP
    later = wide.add(request(PROMPT, OUTPUT, stop_sequences=words, min_tokens=3))
    (output,) = finish(wide, later)
    assert output == plain


def test_a_stop_sequence_does_not_begin_in_the_prompt(wide: Engine, plain: list[int]) -> None:
    asked = wide.add(request(PROMPT, OUTPUT, stop_sequences=((PROMPT[-1], plain[0]),)))
    (output,) = finish(wide, asked)
    assert output[0] == plain[0]
    assert len(output) > 1
