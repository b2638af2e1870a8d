"""The GPUs that kernels are compiled for, and a driver that stands in for them where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from kernels import launch


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU architecture: limits of one multiprocessor, from the vendors' programming guides.

    shared_bytes: shared memory of one program. shared_per_multiprocessor: of all resident programs together.
    """

    name: str
    gpu: GPUTarget
    multiprocessors: int
    shared_bytes: int
    shared_per_multiprocessor: int
    registers: int
    threads: int
    programs: int

    @property
    def is_nvidia(self) -> bool:
        """Whether ptxas assembles for it."""
        return bool(self.gpu.backend == "cuda")

    @property
    def has_fp8(self) -> bool:
        """Whether it converts e4m3 in hardware."""
        return not self.is_nvidia or int(self.gpu.arch) >= 89


def _nvidia(arch: int, multiprocessors: int, shared: int, threads: int, programs: int) -> Target:
    gpu = GPUTarget("cuda", arch, 32)
    return Target(f"sm_{arch}", gpu, multiprocessors, (shared - 1) * 1024, shared * 1024, 65536, threads, programs)


TARGETS = {
    target.name: target
    for target in (
        _nvidia(80, 108, 164, 2048, 32),
        _nvidia(86, 84, 100, 1536, 16),
        _nvidia(89, 58, 100, 1536, 24),
        _nvidia(90, 132, 228, 2048, 32),
        _nvidia(100, 148, 228, 2048, 32),
        # A compute unit: four SIMDs of 512 registers for each of 64 lanes; 8 waves a SIMD.
        Target("gfx942", GPUTarget("hip", "gfx942", 64), 304, 64 * 1024, 64 * 1024, 4 * 512 * 64, 2048, 16),
    )
}


class StandInDriver:
    """As much of a Triton driver as compiling through a launch asks for."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        """The architecture to compile for."""
        return self._target.gpu

    def get_current_device(self) -> str:
        """Key of the kernels' caches, so that each target has its own."""
        return self._target.name

    def get_current_stream(self, device: str) -> int:  # noqa: ARG002
        """No stream is ever used."""
        return 0


@contextmanager
def compiling_for(target: Target, record: Callable[[str, Any], None]) -> Iterator[None]:
    """Within, launching a kernel on meta tensors compiles it for the target and records (name, compiled) instead."""
    run = JITFunction.run
    limits = launch.DeviceLimits(target.multiprocessors, target.shared_bytes)

    def compile_only(self: Any, *args: Any, **kwargs: Any) -> None:
        record(self.__name__, run(self, *args, **{**kwargs, "warmup": True}))

    before = triton.runtime.driver._active
    triton.runtime.driver.set_active(StandInDriver(target))
    try:
        with patch.object(JITFunction, "run", compile_only), patch.object(launch, "limits", lambda _: limits):
            yield
    finally:
        triton.runtime.driver._active = before


def meta(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor with a shape and no memory."""
    return torch.empty(shape, dtype=dtype, device="meta")
