import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.weights import DecoderWeights, load_weights
from kernels.launch_operations import decode_operations, mixed_operations
from kernels.operations import Operations
from kernels.table import reference_operations

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))

from gpu_report.random_models import TOY, make_config, make_pool, make_weights, step_inputs

TABLES = torch.tensor([[5, 2, 7], [1, 6, 3]], dtype=torch.int32)
CPU = torch.device("cpu")


def logits(
    config: ModelConfig,
    weights: DecoderWeights,
    mixed: Callable[[], Operations],
    decode: Callable[[], Operations],
    prompts: tuple[int, ...] = (5, 21),
) -> torch.Tensor:
    """Of prompts of these lengths, then of four decode steps."""
    pool, tables = make_pool(config, 8, torch.float32, CPU), TABLES[: len(prompts)]
    found = [Decoder(config, weights, mixed()).forward(step_inputs([(n, n) for n in prompts], tables), pool)]
    for step in range(1, 5):
        inputs = step_inputs([(1, n + step) for n in prompts], tables)
        found.append(Decoder(config, weights, decode()).forward(inputs, pool))
    return torch.cat(found)


@pytest.mark.nightly
@pytest.mark.parametrize("qk_norm", [True, False])
def test_a_small_model_gives_the_references_logits(qk_norm: bool) -> None:
    torch.manual_seed(0)
    config = make_config(TOY, qk_norm)
    weights = make_weights(config, torch.float32, CPU)
    expected = logits(config, weights, reference_operations, reference_operations)
    found = logits(config, weights, mixed_operations, decode_operations)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("prompts", [(5,), (5, 21)])
def test_smollm2_gives_the_references_logits(smollm2_dir: Path, prompts: tuple[int, ...]) -> None:
    config = ModelConfig.from_directory(smollm2_dir)
    weights = load_weights(smollm2_dir, config, progress=False)
    expected = logits(config, weights, reference_operations, reference_operations, prompts)
    found = logits(config, weights, mixed_operations, decode_operations, prompts)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert torch.equal(found.argmax(dim=1), expected.argmax(dim=1))
