"""Logits of every position of a prompt are transformers', however the prompt is cut, found, shared or preempted."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from backend.beam_params import BeamParams
from backend.engine import Engine
from backend.request import Sequence
from backend.serving.extra_outputs import ExtraOutputs
from tests.engine.engines import finish, narrow_engine, request, small_engine
from tests.model.tiny_models import Saved

VOCAB = 101
PROMPT = tuple((7 * n * n + 3 * n + 5) % VOCAB for n in range(45))


@pytest.fixture(scope="module")
def engine(saved: Saved) -> Iterator[Engine]:
    """Chunks of at most 16 tokens, blocks of 8."""
    made = small_engine(saved.path, max_batch_size=4)
    yield made
    made.close()


def logits_of(sequence: Sequence) -> np.ndarray:
    extra = ExtraOutputs(sequence.request.sampling, VOCAB, False, lambda: 0.0)
    extra.follow(sequence)
    assert "context_logits" not in extra.take(final=False)
    return extra.take(final=True)["context_logits"]


def check(saved: Saved, sequence: Sequence) -> None:
    with torch.inference_mode():
        expected = saved.oracle(torch.tensor([sequence.request.prompt])).logits[0].numpy()
    assert np.abs(logits_of(sequence) - expected).max() < 1e-4


@pytest.mark.parametrize("length", [1, 16, 45])
def test_they_are_those_of_transformers_for_prompts_of_one_chunk_and_of_several(
    engine: Engine, saved: Saved, length: int
) -> None:
    plain = engine.add(request(PROMPT[:length], 5))
    finish(engine)
    hits = engine.scheduler.residency.hit_tokens
    asked = engine.add(request(PROMPT[:length], 5, context_logits=True, repetition_penalty=1.2))
    beside = engine.add(request(PROMPT[:length], 5))
    finish(engine)
    check(saved, asked)
    assert list(beside.output) == list(plain.output)
    assert engine.scheduler.residency.hit_tokens - hits <= length, "only the neighbour takes from the cache"


def test_a_search_over_beams_has_them_too(engine: Engine, saved: Saved) -> None:
    asked = engine.add(request(PROMPT, 5, context_logits=True, beams=BeamParams(width=3, num_returned=3)))
    finish(engine)
    check(saved, asked)


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_a_preempted_prompt_loses_none(saved: Saved, mode: str) -> None:
    engine = narrow_engine(saved.path, mode, enable_kv_cache_reuse=True)
    low = engine.add(request(PROMPT, 5, level=3, context_logits=True))
    while low.num_computed < 32:
        engine.step()
    engine.add(request((5, 6, 7), 2, level=1))
    finish(engine)
    engine.close()
    assert low.num_preemptions == 1
    check(saved, low)


def test_whoever_leaves_in_the_prompt_gets_those_that_were_computed(engine: Engine) -> None:
    asked = engine.add(request(PROMPT, 5, context_logits=True))
    while asked.num_computed < 32:
        engine.step()
    engine.cancel(asked)
    finish(engine)
    assert 16 <= len(logits_of(asked)) < len(PROMPT)
