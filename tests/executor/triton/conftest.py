"""As in tests/kernels/triton: in the interpreter, in this process if it still can be, else in one of their own."""

from collections.abc import Iterator

import pytest
import torch

from tests.kernels.triton.conftest import INTERPRETING

collect_ignore_glob: list[str] = [] if INTERPRETING else ["test_triton_*.py"]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def few_programs() -> Iterator[None]:
    """Decode attention offers its work to as many programs as a GPU runs; each costs the interpreter milliseconds."""
    if not INTERPRETING:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernels.paged_attention.triton_decode.PROGRAMS_PER_MULTIPROCESSOR", 1)
        yield
