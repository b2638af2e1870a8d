"""The table of operations a decoder runs on: chosen once, at load, by device."""

import torch

from kernels.add_rms_norm import reference as add_rms_norm_reference
from kernels.gated_activation import reference as gated_activation_reference
from kernels.linear import reference as linear_reference
from kernels.linear.gated import in_two
from kernels.operations import Operations
from kernels.paged_attention import reference as paged_attention_reference
from kernels.rms_norm import reference as rms_norm_reference
from kernels.rope_and_write import reference as rope_and_write_reference


def reference_operations() -> Operations:
    """The plain torch operations: right on every device, the oracle of all others."""
    return Operations(
        paged_attention=paged_attention_reference.paged_attention,
        rope_and_write=rope_and_write_reference.rope_and_write,
        rms_norm=rms_norm_reference.rms_norm,
        add_rms_norm=add_rms_norm_reference.add_rms_norm,
        gated_activation=gated_activation_reference.gated_activation,
        pack_linear=linear_reference.pack_linear,
        linear=linear_reference.linear,
        gated_linear=in_two(linear_reference.linear, gated_activation_reference.gated_activation),
    )


def cpu_operations(
    num_threads: int,
    weight_precision: str = "float32",
    batch_invariant: bool = False,
    niceness: int = 0,
    activation_precision: str = "int16",
    pool: torch.dtype = torch.float32,
) -> Operations:
    """Compiled operations on threads of their own, which end with the operations. For one caller at a time.

    The first call on a machine compiles for some time, which it says on standard error; later ones read the cache.
    Tensors are float32, the pool may be float16. torch's own threads would fight these for the cores: set them to 1.

    Args:
        num_threads: how many threads work, the caller's among them.
        weight_precision: what ``pack_linear`` keeps, "float32" or "int8" (one scale per output).
        batch_invariant: a row is the same bit for bit whatever rows are computed with it; attention costs more.
        niceness: of the threads, for the system's scheduler.
        activation_precision: what rows are rounded to beside int8 weights: "int16", 15 bits of a row's largest element,
            or "int8", 8 of that of each 64, which is fast where the processor multiplies bytes. Rounding so coarse
            makes much of any difference before it, so choose batch_invariant or an int16 pool with it.
        pool: what the pool will hold: torch.float32, float16 or int16 (``kernels.int16_kv.reference``). What attention
            over another takes is compiled when it is met.
    """
    # Imported here, as numba takes a second to load and a GPU has no use for it.
    from kernels.cpu.operations import make_operations

    return make_operations(num_threads, weight_precision, batch_invariant, niceness, activation_precision, pool)
