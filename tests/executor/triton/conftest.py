"""As in tests/kernels/triton: in the interpreter, in this process if it still can be, else in one of their own."""

import pytest
import torch

from tests.kernels.triton.conftest import INTERPRETING

collect_ignore_glob: list[str] = [] if INTERPRETING else ["test_triton_*.py"]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)
