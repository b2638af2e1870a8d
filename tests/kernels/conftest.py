from collections.abc import Callable

import pytest
import torch

from kernels.operations import Operations
from kernels.table import cpu_operations, reference_operations

_MAKE: dict[str, Callable[[], Operations]] = {"reference": reference_operations, "cpu": lambda: cpu_operations(2)}


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session", params=_MAKE)
def operations(request: pytest.FixtureRequest) -> Operations:
    """Each set of operations that runs on the CPU, one after the other."""
    return _MAKE[request.param]()


@pytest.fixture(scope="session")
def compiled() -> Operations:
    return cpu_operations(2)


@pytest.fixture(scope="session")
def of_precision(compiled: Operations) -> dict[str, Operations]:
    """Compiled operations by the precision of their weights, and of x where that is bytes."""
    narrow = cpu_operations(2, "int8", activation_precision="int8")
    return {"float32": compiled, "int8": cpu_operations(2, "int8"), "int8 by int8": narrow}
