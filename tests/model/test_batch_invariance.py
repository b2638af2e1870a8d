"""``batch_invariant``: every logit is the same bit for bit, however its prompt is cut and whatever stands beside it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.weights import load_weights
from kernels.operations import Operations
from kernels.table import cpu_operations
from tests.model.paged_run import PagedRun
from tests.model.tiny_models import Saved

Steps = list[list[tuple[int, int]]]
LENGTHS = (200, 131, 70)
ALONE: Steps = [[(0, 200)], [(1, 131)], [(2, 70)]]
WHOLE: Steps = [[(0, 200), (1, 131), (2, 70)]]
ONE_BY_ONE: Steps = [[(0, 1), (1, 1), (2, 1)]] * 70 + [[(0, 1), (1, 1)]] * 61 + [[(0, 1)]] * 69
MIXED: Steps = [[(0, 13), (2, 69)], [(1, 64), (0, 1), (2, 1)], [(0, 100), (1, 1)], [(0, 86), (1, 66)]]


@pytest.fixture(scope="module", params=["float32", "int8"])
def invariant(request: pytest.FixtureRequest) -> Operations:
    return cpu_operations(2, request.param, batch_invariant=True)


def logits(saved: Saved, operations: Operations, steps: Steps) -> list[Tensor]:
    config = ModelConfig.from_directory(saved.path)
    weights = load_weights(saved.path, config, progress=False, pack=operations.pack_linear)
    prompts = [[3 + (7 * i + 5 * s) % 97 for i in range(length)] for s, length in enumerate(LENGTHS)]
    return PagedRun(Decoder(config, weights, operations), prompts).run(steps)


@pytest.mark.parametrize("name", ["llama-biases", "mistral-window", "qwen3", "gemma3-final-cap"])
def test_logits_are_equal_bit_for_bit(name: str, saved: Callable[[str], Saved], invariant: Operations) -> None:
    expected = logits(saved(name), invariant, ALONE)
    for steps in (WHOLE, ONE_BY_ONE, MIXED):
        for found, alone in zip(logits(saved(name), invariant, steps), expected, strict=True):
            assert torch.equal(found, alone)


def test_without_it_the_last_bits_do_depend_on_the_cut(saved: Callable[[str], Saved], compiled: Operations) -> None:
    """So the test above would see a difference."""
    alone, cut = (logits(saved("qwen3"), compiled, steps) for steps in (ALONE, ONE_BY_ONE))
    assert not torch.equal(alone[0], cut[0])
    torch.testing.assert_close(alone[0], cut[0], rtol=1e-4, atol=1e-4)
