"""Kernels for a processor without AVX-512, on one that has it: compiled for it, they pass the same tests."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import sys, pytest
from llvmlite import binding

found = binding.get_host_cpu_features()
binding.get_host_cpu_features = lambda: {name: has and not name.startswith("avx512") for name, has in found.items()}
from kernels.cpu import byte_tile  # after that: some modules look when they are imported
assert not byte_tile.supported()
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.mark.nightly
@pytest.mark.skipif(
    platform.machine() != "x86_64" or not get_host_cpu_features().get("avx512bw"), reason="is plain itself"
)
def test_kernels_for_a_processor_without_avx512_pass_the_same_tests(tmp_path: Path) -> None:
    names = ("test_cpu_linear.py", "test_int16_attention.py", "test_paged_attention.py")
    files = [str(ROOT / "tests/kernels" / name) for name in names]
    environment = {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx2,+fma,+f16c",
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    run = subprocess.run(
        [sys.executable, "-c", RUN, *files], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
    assert " passed" in run.stdout
    assert " failed" not in run.stdout
