"""The CPU's set of operations."""

import torch

from kernels.cpu.team import Team
from kernels.gated_activation.cpu import CpuGatedActivation
from kernels.linear.cpu import CpuGatedLinear, CpuLinear
from kernels.operations import Operations
from kernels.paged_attention.cpu import CpuPagedAttention
from kernels.rms_norm.cpu import CpuRmsNorm
from kernels.rope_and_write.cpu import CpuRopeAndWrite

_KERNELS = (CpuRmsNorm.kernel, CpuRopeAndWrite.kernel, CpuGatedActivation.kernel)


def make_operations(
    num_threads: int, weight_precision: str, batch_invariant: bool, niceness: int, activation_precision: str,
    pool: torch.dtype,
) -> Operations:
    """As ``kernels.table.cpu_operations``; everything is compiled when it returns."""
    for kernel in _KERNELS:
        kernel.compile()
    team = Team(num_threads, niceness)
    attention = CpuPagedAttention(team, batch_invariant)
    attention.compile(pool)
    norm, linear = CpuRmsNorm(team), CpuLinear(team, weight_precision, activation_precision)
    activation = CpuGatedActivation(team)
    return Operations(
        paged_attention=attention,
        rope_and_write=CpuRopeAndWrite(team),
        rms_norm=norm,
        add_rms_norm=norm.add,
        gated_activation=activation,
        pack_linear=linear.pack,
        linear=linear,
        gated_linear=CpuGatedLinear(linear, activation),
        workspace=team.workspace,
        recorder=team,
    )
