"""Run the Triton kernels of these tests in the interpreter.

Kernels become interpreted functions when they are defined, and so do those of the Triton language's own library. So
the variable must be set before triton is first imported, which another test of the same process may have done already
(transformers' models do). The tests here are then left out, and test_in_own_process.py runs them in a process of
their own.
"""

import os
import sys

import pytest
import torch

NIGHTLY = os.environ.get("TESTS_NIGHTLY") == "1"
IMPORTED_BEFORE = "triton" in sys.modules
os.environ.setdefault("TRITON_INTERPRET", "1")

import triton.language  # noqa: E402
from triton.runtime.interpreter import InterpretedFunction  # noqa: E402

INTERPRETING = isinstance(triton.language.cdiv, InterpretedFunction)
collect_ignore_glob: list[str] = []
if not INTERPRETING:
    collect_ignore_glob += ["test_triton_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "nightly: exhaustive; runs with TESTS_NIGHTLY=1 only")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not NIGHTLY:
        for item in items:
            if item.get_closest_marker("nightly"):
                item.add_marker(pytest.mark.skip(reason="nightly: set TESTS_NIGHTLY=1"))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)
