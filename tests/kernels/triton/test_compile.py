"""The compiler runs in processes of its own: kernels of this process may be interpreted functions."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from kernel_report import report, resources, work  # noqa: E402
from kernel_report.targets import TARGETS  # noqa: E402


def run_script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / name), *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def compiled(*arguments: str) -> str:
    run = run_script("compile_kernels.py", "--few", "--check", "--jobs", "1", *arguments)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


def test_some_kernels_compile_to_tensor_core_instructions_without_spills() -> None:
    """All of them by the nightly test below, in every configuration by the script."""
    some = "(prompt|decode) attention D128 group 4 block 16 bf16$|linear 1 rows int4|sample, filtered"
    found = compiled("--targets", "sm_90", "gfx942", "--only", some)
    for instruction in ("wgmma", "mma.sync.m16n8k16", "v_mfma"):
        assert instruction in found
    for kernel in ("split_attention", "merge_parts", "group_linear", "cut", "draw"):
        assert found.count(f" {kernel} ") == 2


@pytest.mark.nightly
def test_the_representative_configurations_compile_for_every_target() -> None:
    for target in TARGETS:
        assert target in compiled("--targets", target)


def needs(**changed: int) -> resources.Resources:
    values = {"warps": 4, "registers": 128, "spills": 0, "shared": 37888, "resident": 4, **changed}
    return resources.Resources(kernel="some", tensor_core="", **values)  # type: ignore[arg-type]


def test_the_check_sees_spills_too_much_shared_memory_and_what_fits_nowhere() -> None:
    def found(hot: bool = True, **changed: int) -> list[str]:
        return report.failures([report.Row(0, "case", "sm_90", hot, needs(**changed))])

    assert not found()
    assert "64 bytes of registers spilled" in found(spills=64)[0]
    assert not found(hot=False, spills=64)
    assert "240000 bytes of shared memory, the limit is 232448" in found(shared=240000)[0]
    assert "not one program fits" in found(resident=0)[0]


@pytest.mark.parametrize(
    ("target", "registers", "shared", "warps", "resident"),
    [
        ("sm_90", 128, 0, 4, 4),  # 65536 registers / (128 x 128 threads)
        ("sm_90", 32, 0, 4, 16),  # 2048 threads
        ("sm_90", 64, 100_000, 4, 2),  # 228 KiB of shared memory, 1 KiB more each
        ("sm_86", 40, 0, 4, 12),  # 1536 threads
        ("gfx942", 128, 32768, 4, 2),  # 64 KiB of shared memory
        ("gfx942", 256, 0, 8, 1),  # two waves on each of four SIMDs
    ],
)
def test_resident_programs(target: str, registers: int, shared: int, warps: int, resident: int) -> None:
    assert resources.resident_programs(TARGETS[target], registers, shared, warps) == resident


def test_resources_of_amd_are_read_from_the_metadata() -> None:
    text = "    .agpr_count:     8\n    .vgpr_count:     100\n    .vgpr_spill_count: 3\n v_mfma_f32_16x16x16_bf16 a\n"
    kernel = SimpleNamespace(asm={"amdgcn": text}, metadata=SimpleNamespace(num_warps=4, shared=10))
    found = resources.measure("some_kernel", kernel, TARGETS["gfx942"])
    assert (found.kernel, found.registers, found.spills, found.tensor_core) == ("some", 108, 12, "v_mfma.16x16x16_bf16")


def test_decode_attention_is_bound_by_the_bytes_of_the_pool() -> None:
    found = work.attention(work.LLAMA, 64, 1, 8192)
    assert found.moved == pytest.approx(64 * 8192 * 2 * 8 * 128 * 2, rel=0.01)
    assert found.bound(work.H200) == "memory"
    assert found.seconds(work.H200) == pytest.approx(447e-6, rel=0.02)
    assert work.attention(work.LLAMA, 1, 8192, 8192).bound(work.H200) == "compute"


@pytest.mark.nightly
def test_the_gpu_check_runs_at_toy_sizes_on_the_cpu(tmp_path: Path) -> None:
    run = run_script("gpu_check.py", "--json", str(tmp_path / "found.json"), "--seconds", "2000")
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-2000:]
    found = json.loads((tmp_path / "found.json").read_text())
    sections = {result["section"] for result in found["results"]}
    assert sections == {"correctness", "rate", "step", "end to end"}
    assert all(result["ok"] for result in found["results"] if result["section"] in ("correctness", "end to end"))
    names = [result["name"] for result in found["results"] if result["section"] == "correctness"]
    assert len(set(names)) == len(names)


def test_the_gpu_check_leaves_out_what_it_has_no_time_for(tmp_path: Path) -> None:
    run = run_script("gpu_check.py", "--json", str(tmp_path / "found.json"), "--seconds", "0")
    assert "left out: time is up" in run.stdout
    assert run.returncode == 0, run.stderr[-2000:]


REFUSE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tqdm", "gguf", "numba", "safetensors", "tokenizers", "transformers", "hypothesis"):
            raise ImportError(name + " is not here")

sys.meta_path.insert(0, Refuse())
"""


def test_the_gpu_check_runs_engine_and_executor_with_nothing_but_torch_triton_and_numpy(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(REFUSE)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import gpu_check, torch\n"
        "from kernels.paged_attention import triton_decode; triton_decode.PROGRAMS_PER_MULTIPROCESSOR = 1\n"
        "bench = gpu_check.Bench(torch.device('cpu'), float('inf'))\n"
        "for result in gpu_check._models(bench, gpu_check.Ceilings(1.0, 1.0)): print(result.name, result.value)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "scripts")],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert re.search(r"toy: 256 mixed requests ran: (\d+) of \1 tokens", run.stdout)
    assert "toy: decode step, batch 2, context 40 ran" in run.stdout
