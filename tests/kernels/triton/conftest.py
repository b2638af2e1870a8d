"""Run the Triton kernels of these tests in the interpreter.

Kernels become interpreted functions when they are defined, and so do those of the Triton language's own library. So
the variable must be set before triton is first imported, which another test of the same process may have done already
(transformers' models do). The tests here are then left out, and test_in_own_process.py runs them in a process of
their own.
"""

import os

import pytest
import torch

os.environ.setdefault("TRITON_INTERPRET", "1")

import triton.language
from triton.runtime.interpreter import InterpretedFunction

from tests.kernels.triton import exact_casts

INTERPRETING = isinstance(triton.language.cdiv, InterpretedFunction)
exact_casts.correct()
collect_ignore_glob: list[str] = []
if not INTERPRETING:
    collect_ignore_glob += ["test_triton_*.py"]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_numbers_each_time() -> None:
    torch.manual_seed(0)
