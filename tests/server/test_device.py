"""A GPU is asked for where none is: the server does not start, and one line says why."""

import subprocess
from pathlib import Path

import pytest
import torch

from tests.server_fixture import command_line

pytestmark = pytest.mark.server


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_ends_the_start_with_one_line(smollm2_dir: Path) -> None:
    done = subprocess.run(command_line(smollm2_dir, device="cuda"), capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(
        "error: inflight_batcher: parameter device: 'cuda' is asked for, but "
    )
