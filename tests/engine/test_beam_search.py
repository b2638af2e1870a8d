"""A search over beams through the whole engine finds what transformers finds on the same weights, and with the same
scores, whatever happens to it on the way."""

from typing import Any

import pytest
import torch

from backend.beam_params import BeamParams
from backend.beam_search import Answer
from backend.endings import FinishReason
from backend.engine import Engine
from backend.errors import InvalidRequest
from backend.request import Sequence
from tests.engine.engines import finish, idle, narrow_engine, request
from tests.model.tiny_models import Saved

ENDS = (2, 17, 40, 77)
EARLY = {1: True, 0: False, 2: "never"}
SCORE = 1e-4


def prompt_of(seed: int, length: int) -> tuple[int, ...]:
    return tuple((7 * n * n + 3 * n + 5 * seed) % 101 for n in range(length))


def search(
    engine: Engine,
    prompt: tuple[int, ...],
    max_tokens: int,
    width: int,
    *,
    ends: tuple[int, ...] = ENDS,
    returned: int | None = None,
    beams: dict[str, Any] | None = None,
    level: int = 2,
    **sampling: Any,
) -> Sequence:
    params = BeamParams(width=width, num_returned=returned or width, **(beams or {}))
    return engine.add(request(prompt, max_tokens, level, end_ids=frozenset(ends), beams=params, **sampling))


def answers(sequence: Sequence) -> list[Answer]:
    assert sequence.group is not None
    return sequence.group.answers


def generated(saved: Saved, prompt: tuple[int, ...], max_tokens: int, width: int, **options: Any) -> Any:
    """transformers' outputs, cut after their end, and their scores."""
    ids = torch.tensor([prompt])
    ends = options.pop("ends", ENDS)
    options = {"eos_token_id": list(ends) or None, "pad_token_id": 0, "num_return_sequences": width, **options}
    with torch.inference_mode():
        out = saved.oracle.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            num_beams=width,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
    outputs = []
    for row in out.sequences[:, len(prompt) :].tolist():
        end = next((n for n, token in enumerate(row) if token in ends), len(row) - 1)
        outputs.append(row[: end + 1])
    return outputs, out.sequences_scores.tolist()


def check(saved: Saved, sequence: Sequence, width: int, **options: Any) -> None:
    asked = sequence.request
    outputs, scores = generated(saved, asked.prompt, asked.sampling.max_tokens, width, **options)
    found = answers(sequence)
    assert [answer.output for answer in found] == outputs
    assert [answer.score for answer in found] == pytest.approx(scores, abs=SCORE)


@pytest.mark.parametrize(
    ("early", "penalty"),
    [
        (1, 0.0), (0, 1.0), (2, 1.0), (2, -0.5),
        *(pytest.param(early, penalty, marks=pytest.mark.nightly) for early in EARLY for penalty in (0.0, 2.0, -0.5)),
    ],
)  # fmt: skip
def test_the_answers_are_those_of_transformers(wide: Engine, saved: Saved, early: int, penalty: float) -> None:
    """Several searches at the same time, of several widths, with prompts that end within a block and at its edge."""
    settings = {"length_penalty": penalty, "early_stopping": early}
    found = [
        (width, search(wide, prompt_of(seed, length), 14, width, beams=settings))
        for seed, length, width in ((1, 19, 2), (2, 16, 3), (3, 40, 4), (4, 1, 5))
    ]
    finish(wide)
    for width, sequence in found:
        check(saved, sequence, width, length_penalty=penalty, early_stopping=EARLY[early])


def test_without_an_end_all_beams_have_the_length_and_fewer_may_be_asked_for(wide: Engine, saved: Saved) -> None:
    one = search(wide, prompt_of(6, 21), 9, 4, ends=(), returned=2)
    finish(wide)
    outputs, scores = generated(saved, one.request.prompt, 9, 4, ends=(), num_return_sequences=2, length_penalty=0.0)
    assert [answer.output for answer in answers(one)] == outputs
    assert [answer.score for answer in answers(one)] == pytest.approx(scores, abs=SCORE)
    assert [answer.cumulative for answer in answers(one)] == pytest.approx(scores, abs=SCORE)
    assert one.finish_reason is FinishReason.LENGTH
    assert list(one.output) == outputs[0]


def test_penalties_and_what_is_forbidden_change_what_beams_are_ranked_by(wide: Engine, saved: Saved) -> None:
    """transformers changes log-probabilities, we change logits as TensorRT-LLM does: so the scores are counted here."""
    prompt = prompt_of(2, 18)
    plain = search(wide, prompt, 12, 3, ends=())
    finish(wide)
    used = answers(plain)[0].output[0]
    without = search(wide, prompt, 12, 3, ends=(), bad_words=((used,),))
    late = search(wide, prompt, 12, 3, min_tokens=6, repetition_penalty=1.5)
    finish(wide)
    assert all(used not in answer.output for answer in answers(without))
    assert all(len(answer.output) > 6 for answer in answers(late))
    again = rescored(saved, late)
    assert [answer.cumulative for answer in answers(late)] == pytest.approx(again, abs=SCORE)


@torch.inference_mode()
def rescored(saved: Saved, sequence: Sequence) -> list[float]:
    """The log-probabilities that our order of changes gives the answers, computed by transformers' model."""
    sampling, totals = sequence.request.sampling, []
    for answer in answers(sequence):
        tokens, total = list(sequence.request.prompt), 0.0
        for place, token in enumerate(answer.output):
            logits = saved.oracle(torch.tensor([tokens])).logits[0, -1]
            for seen in set(tokens):
                logits[seen] *= sampling.repetition_penalty if logits[seen] < 0 else 1 / sampling.repetition_penalty
            if place < sampling.min_tokens:
                logits[list(ENDS)] = -torch.inf
            total += float(torch.log_softmax(logits, -1)[token])
            tokens.append(token)
        totals.append(total)
    return totals


def test_stop_tokens_and_stop_sequences_end_beams_with_their_own_reason(wide: Engine) -> None:
    prompt = prompt_of(3, 20)
    plain = search(wide, prompt, 12, 3, ends=())
    finish(wide)
    best = answers(plain)[0].output
    stops = search(wide, prompt, 12, 3, ends=(), stop_ids=frozenset(best[3:4]), stop_sequences=(tuple(best[1:3]),))
    finish(wide)
    for answer in answers(stops):
        ended = answer.output[-1] == best[3] or answer.output[-2:] == best[1:3]
        assert (answer.reason is FinishReason.STOP) == ended
    assert any(answer.reason is FinishReason.STOP for answer in answers(stops))


@pytest.mark.parametrize("mode", ["swap", "recompute"])
@pytest.mark.parametrize("at", [0, 2, 7])
def test_a_preempted_search_finds_what_it_would_have_found(saved: Saved, mode: str, at: int) -> None:
    """The urgent request takes all slots, in the prompt, after two tokens or after seven, and once more later."""
    engine = narrow_engine(saved.path, mode, max_batch_size=3)
    low = search(engine, prompt_of(1, 35), 12, 3, ends=(), level=3)
    for target in (at, at + 2):
        while said(low) < target or not low.num_computed:
            engine.step()
            engine.scheduler.check_integrity()
        engine.add(request((5, 6, 7), 2, level=1))
        engine.step()
        engine.step()
    finish(engine)
    engine.close()
    assert low.num_preemptions == 2
    assert (engine.scheduler.residency.swapped_blocks > 0) == (mode == "swap")
    check(saved, low, 3, ends=(), length_penalty=0.0)


def said(sequence: Sequence) -> int:
    assert sequence.group is not None
    return len(sequence.group.search.beams[0].output)


def test_neighbours_of_a_search_say_what_they_say_alone(wide: Engine) -> None:
    asked = [{"temperature": 1.0, "seed": 9}, {"repetition_penalty": 1.3}, {}]
    alone = [wide.add(request(prompt_of(n, 19), 12, **each)) for n, each in enumerate(asked)]
    finish(wide)
    search(wide, prompt_of(0, 19), 12, 4)
    beside = [wide.add(request(prompt_of(n, 19), 12, **each)) for n, each in enumerate(asked)]
    finish(wide)
    assert [list(s.output) for s in beside] == [list(s.output) for s in alone]


def test_a_search_that_could_never_run_is_refused_with_the_numbers(wide: Engine) -> None:
    with pytest.raises(InvalidRequest, match="^beam_width: 17 is out of range, max_batch_size is 16"):
        search(wide, prompt_of(1, 9), 5, 17)
    with pytest.raises(InvalidRequest, match="^beam_width: 16 beams of 100 tokens .* need 210 blocks, .* has 128"):
        search(wide, prompt_of(1, 9), 100, 16)
    assert idle(wide)
