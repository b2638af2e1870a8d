"""What all tests share: fixtures with real models, and the choice between the everyday and the nightly tests."""

import os

import pytest

pytest_plugins = ["tests.model_fixtures"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the exhaustive tests out unless TESTS_NIGHTLY is set; they are counted as deselected."""
    if os.environ.get("TESTS_NIGHTLY"):
        return
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=nightly)
    items[:] = [item for item in items if item not in set(nightly)]
