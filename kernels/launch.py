"""What the launchers of the Triton kernels share: sizes, what the device offers, how a kernel is scheduled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Schedule:
    """How one program runs. warps: of 32 threads (64 on AMD). stages: depth of the load pipeline of its main loop."""

    warps: int
    stages: int = 1

    def options(self) -> dict[str, int | bool]:
        """Keyword arguments of a kernel's launch. Multiply-add fusion is asked for by name: its default changes."""
        return {"num_warps": self.warps, "num_stages": self.stages, "enable_fp_fusion": True}


def cdiv(numerator: int, denominator: int) -> int:
    """The quotient, rounded up."""
    return -(-numerator // denominator)


def power_of_2(n: int, least: int = 1) -> int:
    """The smallest power of two that is at least ``n`` and at least ``least``."""
    return max(least, 1 << max(n - 1, 0).bit_length())


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a launcher asks of a device. shared_bytes: the shared memory that one program may take."""

    multiprocessors: int
    shared_bytes: int


INTERPRETER = DeviceLimits(multiprocessors=4, shared_bytes=227 * 1024)
"""Stands for the CPU; few multiprocessors, so that small tests split their work too."""


@lru_cache(maxsize=16)
def limits(device: torch.device) -> DeviceLimits:
    """The limits of a device, asked of the driver once."""
    if device.type == "cpu":
        return INTERPRETER
    found = torch.cuda.get_device_properties(device)
    shared = getattr(found, "shared_memory_per_block_optin", 0) or found.shared_memory_per_block
    return DeviceLimits(int(found.multi_processor_count), int(shared))


def multiprocessors(tensor: Tensor) -> int:
    """Multiprocessors of the tensor's device."""
    return limits(tensor.device).multiprocessors


def shared_bytes(tensor: Tensor) -> int:
    """Shared memory in bytes that one program may take on the tensor's device."""
    return limits(tensor.device).shared_bytes
