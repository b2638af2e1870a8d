"""An engine that has been built compiles nothing any more: its first request is as any other."""

from __future__ import annotations

from pathlib import Path

import numba
import pytest
from numba.core import event

from tests.engine.engines import request, run, small_engine
from tests.model.tiny_models import save_tiny

PROMPT = tuple((7 * n * n + 3 * n + 5) % 101 for n in range(40))
COMPILES = "numba:compiler_lock"
"""Whoever compiles, or takes compiled code from the cache, takes numba's lock."""


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_nothing_is_compiled_after_the_build(tmp_path: Path, precision: str) -> None:
    saved = save_tiny("llama-tied", tmp_path)
    engine = small_engine(saved.path, weight_precision=precision, max_batch_size=4)
    wishes = [
        {},
        {"temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.01, "seed": 1},
        {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.5, "min_tokens": 2},
        {"log_probs": True, "top_log_probs": 2},
    ]
    with event.install_recorder(COMPILES) as seen:
        # Several chunks, a batch of decodes, rows with wishes of their own, and a preemption-free end.
        sequences = [engine.add(request(PROMPT, 6, **wish)) for wish in wishes]
        run(engine)
    assert [sequence.num_output for sequence in sequences] == [6] * len(wishes)
    assert seen.buffer == []
    engine.close()


def test_the_recorder_hears_a_callback_being_compiled() -> None:
    with event.install_recorder(COMPILES) as seen:
        numba.cfunc(numba.types.int64(numba.types.int64))(lambda x: x + 1)
    assert seen.buffer
