"""The same bits for every logit, however its prompt is cut and whatever stands beside it.

With ``batch_invariant``, and without over a pool of int16.
"""

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


@pytest.fixture(scope="module", params=["float32", "int8 by int16", "int8 by int8"])
def invariant(request: pytest.FixtureRequest) -> Operations:
    weights, _, activations = request.param.partition(" by ")
    return cpu_operations(2, weights, batch_invariant=True, activation_precision=activations or "int16")


@pytest.fixture(scope="module", params=["float32", "int8 by int8"])
def in_whole_numbers(request: pytest.FixtureRequest) -> Operations:
    weights, _, activations = request.param.partition(" by ")
    return cpu_operations(2, weights, activation_precision=activations or "int16", pool=torch.int16)


def logits(
    saved: Saved, operations: Operations, steps: Steps, block_size: int = 4, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    config = ModelConfig.from_directory(saved.path)
    weights = load_weights(saved.path, config, progress=False, pack=operations.pack_linear)
    prompts = [[3 + (7 * i + 5 * s) % 97 for i in range(length)] for s, length in enumerate(LENGTHS)]
    return PagedRun(Decoder(config, weights, operations), prompts, block_size, dtype=dtype).run(steps)


@pytest.mark.parametrize("name", ["llama-biases", "mistral-window", "qwen3", "gemma3-final-cap"])
def test_logits_are_equal_bit_for_bit(name: str, saved: Callable[[str], Saved], invariant: Operations) -> None:
    expected = logits(saved(name), invariant, ALONE)
    for steps in (WHOLE, ONE_BY_ONE, MIXED):
        for found, alone in zip(logits(saved(name), invariant, steps), expected, strict=True):
            assert torch.equal(found, alone)


@pytest.mark.parametrize("name", ["qwen3-heads-of-64", "mistral-heads-of-64"])
def test_over_a_pool_of_int16_they_are_without(
    name: str, saved: Callable[[str], Saved], in_whole_numbers: Operations
) -> None:
    expected = logits(saved(name), in_whole_numbers, ALONE, 16, torch.int16)
    for steps in (WHOLE, ONE_BY_ONE, MIXED):
        for found, alone in zip(logits(saved(name), in_whole_numbers, steps, 32, torch.int16), expected, strict=True):
            assert torch.equal(found, alone)


def test_a_pool_of_int16_loses_little(saved: Callable[[str], Saved]) -> None:
    operations = cpu_operations(2, pool=torch.int16)
    for name in ("qwen3-heads-of-64", "mistral-heads-of-64"):
        found = logits(saved(name), operations, MIXED, 16, torch.int16)
        expected = logits(saved(name), operations, MIXED)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0.01, atol=2e-3)
            assert not torch.equal(ours, theirs)


def test_without_it_the_last_bits_do_depend_on_the_cut(saved: Callable[[str], Saved], compiled: Operations) -> None:
    """So the test above would see a difference."""
    alone, cut = (logits(saved("qwen3"), compiled, steps) for steps in (ALONE, ONE_BY_ONE))
    assert not torch.equal(alone[0], cut[0])
    torch.testing.assert_close(alone[0], cut[0], rtol=1e-4, atol=1e-4)
