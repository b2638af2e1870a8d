import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.triton.conftest import INTERPRETING

HERE = Path(__file__).parent


@pytest.mark.skipif(INTERPRETING, reason="the tests beside this one run in this process")
@pytest.mark.nightly  # 80 s: the kernels themselves run every day, this puts the GPU's executor around them
@pytest.mark.timeout(1800)
def test_the_gpu_executor_in_a_process_that_interprets_its_kernels() -> None:
    command = [sys.executable, "-m", "pytest", "-q", *map(str, sorted(HERE.glob("test_triton_*.py")))]
    run = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
