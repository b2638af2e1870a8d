from collections.abc import Callable

import pytest
import torch

from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.weights import load_weights
from kernels.operations import Operations
from kernels.table import cpu_operations, reference_operations
from tests.model.tiny_models import Saved, save_tiny


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Saved]:
    """The tiny model of a name, made once."""
    made: dict[str, Saved] = {}

    def get(name: str) -> Saved:
        if name not in made:
            made[name] = save_tiny(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


@pytest.fixture(scope="session")
def compiled() -> Operations:
    return cpu_operations(2)


@pytest.fixture(scope="session")
def decoder(saved: Callable[[str], Saved]) -> Callable[[str], Decoder]:
    """A decoder of the tiny model of a name."""

    def get(name: str) -> Decoder:
        config = ModelConfig.from_directory(saved(name).path)
        return Decoder(config, load_weights(saved(name).path, config, progress=False), reference_operations())

    return get
