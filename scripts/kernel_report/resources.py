"""What a compiled kernel takes of a multiprocessor, read from the binary and the assembly."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any

from triton import knobs

from .targets import Target

TENSOR_CORE = {
    "cuda": r"\b(wgmma\.mma_async|tcgen05\.mma|mma\.sync)\S*?\.(m\d+n\d+k\d+|kind::\w+)",
    "hip": r"\b(v_mfma)_f32_(\w+)",
}
_REGISTER_UNIT = {True: 256, False: 8}
_RESERVED_SHARED = 1024  # by the driver, for each resident program, from sm_80 on


@dataclass(frozen=True, slots=True)
class Resources:
    """Of one program. registers: of one thread. spills: bytes of one thread's registers kept in memory."""

    kernel: str
    warps: int
    registers: int
    spills: int
    shared: int
    tensor_core: str
    resident: int


def measure(name: str, compiled: Any, target: Target) -> Resources:
    """Resources of a compiled kernel. resident: programs that one multiprocessor holds at a time."""
    registers, spills = _nvidia(compiled) if target.is_nvidia else _amd(compiled)
    warps, shared = int(compiled.metadata.num_warps), int(compiled.metadata.shared)
    assembly = compiled.asm["ptx" if target.is_nvidia else "amdgcn"]
    return Resources(
        kernel=name.removesuffix("_kernel"),
        warps=warps,
        registers=registers,
        spills=spills,
        shared=shared,
        tensor_core=_tensor_core(assembly, target.gpu.backend),
        resident=resident_programs(target, registers, shared, warps),
    )


def resident_programs(target: Target, registers: int, shared: int, warps: int) -> int:
    """Programs of ``warps`` warps that fit on one multiprocessor by registers, shared memory, threads and slots."""
    size = int(target.gpu.warp_size)
    unit = _REGISTER_UNIT[target.is_nvidia]
    # NVIDIA hands out registers by the warp, AMD by the thread.
    of_warp = _up(registers * size, unit) if target.is_nvidia else _up(registers, unit) * size
    by_shared = target.shared_per_multiprocessor // max(shared + _RESERVED_SHARED * target.is_nvidia, 1)
    by_registers = target.registers // max(of_warp, 1) // warps
    return min(by_registers, by_shared, target.threads // (warps * size), target.programs)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _tensor_core(assembly: str, backend: str) -> str:
    found = {f"{name}.{shape}" for name, shape in re.findall(TENSOR_CORE[backend], assembly)}
    return ", ".join(sorted(found))


def _nvidia(compiled: Any) -> tuple[int, int]:
    """Registers and stack bytes, from the binary. No kernel here has an array of its own: a stack holds spills."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return _largest(r"REG:(\d+)", usage), _largest(r"STACK:(\d+)", usage)


def _largest(pattern: str, text: str) -> int:
    return max(int(number) for number in re.findall(pattern, text))


def _amd(compiled: Any) -> tuple[int, int]:
    """Vector and accumulation registers together, and spilled bytes, from the kernel's metadata."""
    values = {key: int(value) for key, value in re.findall(r"\.(\w+):\s+(\d+)\s*$", compiled.asm["amdgcn"], re.M)}
    # Spilled scalar registers go to lanes of vector registers, not to memory.
    return values["vgpr_count"] + values.get("agpr_count", 0), 4 * values["vgpr_spill_count"]
