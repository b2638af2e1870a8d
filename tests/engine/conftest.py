"""A tiny model that transformers made, and real engines on it, of a module's own."""

from collections.abc import Iterator

import pytest

from backend.engine import Engine
from tests.engine.engines import narrow_engine, small_engine
from tests.model.tiny_models import Saved, save_tiny


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return save_tiny("llama-tied", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def wide(saved: Saved) -> Iterator[Engine]:
    engine = small_engine(saved.path, max_batch_size=16)
    yield engine
    engine.close()


@pytest.fixture(scope="module", params=["swap", "recompute"])
def narrow(request: pytest.FixtureRequest, saved: Saved) -> Iterator[Engine]:
    """One slot, which each urgent request takes."""
    engine = narrow_engine(saved.path, request.param)
    yield engine
    engine.close()
