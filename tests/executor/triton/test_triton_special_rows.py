"""Penalties, bias, bad words, least lengths and log-probabilities on the GPU executor, against the CPU executor."""

from functools import partial
from typing import Any

import pytest

from backend.engine import Engine
from backend.executor.cpu import CpuExecutor
from backend.logit_bias import LogitBias
from backend.model.decoder import Decoder
from backend.request import Request, Sequence
from kernels.table import reference_operations
from tests.engine.engines import request
from tests.executor.triton.test_triton_gpu_executor import prompt
from tests.executor.triton.toys import _nothing, _scheduler, expected, gpu_lab, poisoned_pool, run, toy

PENALTIES = {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.3}
DETAILED = {"log_probs": True, "top_log_probs": 3, "generation_logits": True}


def wishes() -> list[dict[str, Any]]:
    """Bad words are pieces of what would be said without them."""
    (said,) = expected([request(prompt(6, 2), 9)])
    return [
        PENALTIES,
        {"bad_words": ((said[0],), tuple(said[2:4]), tuple(said[4:7]))},
        {"min_tokens": 6, "end_ids": frozenset(range(60)), "logit_bias": LogitBias.of([(70, 2.0), (said[0], -3.0)])},
        PENALTIES | {"temperature": 0.8, "seed": 3, "top_k": 20, "bad_words": (tuple(said[1:3]),)} | DETAILED,
    ]


def asked(max_tokens: int = 8) -> list[Request]:
    return [request(prompt(6, 2), max_tokens, **wish) for wish in wishes()]


@pytest.mark.parametrize("ahead", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_the_texts_are_the_cpu_executors_beside_each_other_and_a_plain_one(ahead: bool) -> None:
    requests = [*asked(), request(prompt(9, 1), 6)]
    texts = expected(requests)
    assert run(gpu_lab(slots=4, step_tokens=16, ahead=ahead).engine, requests) == texts
    plain = expected([request(prompt(6, 2), 8)])[0]
    assert all(text != plain for text in texts[:4])


@pytest.mark.nightly
@pytest.mark.parametrize(("host_slots", "mode"), [(6, "swap"), (0, "recompute")])
def test_preempted_sequences_keep_their_counts_and_words(host_slots: int, mode: str) -> None:
    """Seven blocks of four tokens for three sequences that come to hold four each."""
    requests = asked(9)[:2] + asked(9)[3:]
    lab = gpu_lab(blocks=7, slots=3, step_tokens=12, host_slots=host_slots, mode=mode)
    assert run(lab.engine, requests) == expected(requests)
    assert lab.residency.swapped_blocks + lab.residency.recomputed_tokens > 0


def detailed(engine: Engine) -> Sequence:
    sequence = engine.add(request(prompt(6, 2), 6, **PENALTIES, **DETAILED))
    while engine.has_work:
        engine.step()
    return sequence


def test_details_are_the_cpu_executors() -> None:
    config, weights = toy()
    decoder, pool = Decoder(config, weights, reference_operations()), poisoned_pool(40)
    executor = CpuExecutor(partial(decoder.forward, pool=pool), pool, pool.shape[4], _nothing())
    on_cpu = detailed(Engine(_scheduler(40, 1, 64), executor))
    executor.close()
    on_gpu = detailed(gpu_lab().engine)
    ours, theirs = list(on_gpu.details or ()), list(on_cpu.details or ())
    assert len(ours) == len(theirs) == 6
    for one, other in zip(ours, theirs, strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        assert [token for token, _ in one.top] == [token for token, _ in other.top]
        assert [value for _, value in one.top] == pytest.approx([value for _, value in other.top], abs=1e-4)
        assert len(one.logits or b"") == len(other.logits or b"") == 4 * config.vocab_size


@pytest.mark.nightly
def test_the_comparison_sees_a_history_that_misses_tokens() -> None:
    """The detector: without the token drawn last, penalties count too little."""
    requests = [request(prompt(6, 2), 8, frequency_penalty=2.0)]
    lab = gpu_lab()
    lab.executor._special.history.push = lambda rows, tokens: None  # type: ignore[method-assign]
    assert run(lab.engine, requests) != expected(requests)
