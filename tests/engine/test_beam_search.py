"""A search over beams through the whole engine finds what transformers finds on the same weights, and with the same
scores, whatever happens to it on the way."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from backend.beam_params import BeamParams
from backend.beam_search import Answer
from backend.engine import Engine
from backend.request import FinishReason, Sequence
from tests.engine.engines import idle, request, small_engine
from tests.model.tiny_models import Saved, save_tiny

ENDS = (2, 17, 40, 77)
EARLY = {1: True, 0: False, 2: "never"}
SCORE = 1e-4


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return save_tiny("llama-tied", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def wide(saved: Saved) -> Iterator[Engine]:
    engine = small_engine(saved.path, max_batch_size=16)
    yield engine
    engine.close()


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


def finish(engine: Engine) -> None:
    while engine.has_work:
        engine.step()
        engine.scheduler.check_integrity()
    assert idle(engine)


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


@pytest.mark.parametrize("early", EARLY)
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0, -0.5])
def test_the_answers_are_those_of_transformers(wide: Engine, saved: Saved, early: int, penalty: float) -> None:
    """Several searches at the same time, of several widths, with prompts that end within a block and at its edge."""
    settings = {"length_penalty": penalty, "early_stopping": early}
    found = [
        (width, search(wide, prompt_of(seed, length), 14, width, beams=settings))
        for seed, length, width in ((1, 19, 2), (2, 16, 3), (3, 40, 4), (4, 1, 5))
    ]
    while wide.has_work:
        wide.step()
        wide.scheduler.check_integrity()
    assert idle(wide)
    for width, sequence in found:
        check(saved, sequence, width, length_penalty=penalty, early_stopping=EARLY[early])
