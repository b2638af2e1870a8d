"""In what numbers the CPU keeps matrices, keys and values, and in what it multiplies them."""

from __future__ import annotations

from typing import NamedTuple

import torch

from backend.config import EngineConfig
from backend.errors import ConfigError
from kernels.int16_kv import reference as int16_kv
from kernels.operations import Operations
from kernels.table import cpu_operations


class CpuNumbers(NamedTuple):
    """weights, activations: as ``kernels.table.cpu_operations`` takes them. pool: what keys and values are kept in."""

    weights: str
    activations: str
    pool: torch.dtype
    batch_invariant: bool

    def operations(self, num_threads: int, niceness: int = 0) -> Operations:
        """The compiled operations on these numbers."""
        return cpu_operations(num_threads, self.weights, self.batch_invariant, niceness, self.activations, self.pool)


def cpu_numbers(config: EngineConfig, head_dim: int) -> CpuNumbers:
    """What the knobs come to on this processor, for a model with such heads.

    Matrices are in 8 bits unless asked otherwise. Beside them, where the processor multiplies bytes fast, activations
    are bytes, too, and keys and values int16, so that attention is in whole numbers and the same bits whatever the
    neighbours: what is rounded so coarsely makes much of any difference before it. Elsewhere activations have 15 bits
    and the pool is float16, where the processor converts it by itself. Beside float32 matrices all is float32.

    Raises ConfigError for what this processor, model or pool cannot have.
    """
    # Imported here, as numba takes a second to load and a GPU has no use for it.
    from kernels.cpu import byte_tile, half

    weights = "int8" if config.weight_precision == "auto" else config.weight_precision
    activations, kept = config.activation_precision, config.kv_cache_precision
    laid_out = int16_kv.supported(config.tokens_per_block, head_dim)
    if kept == "float16" and not half.supported():
        raise ConfigError(
            "parameter kv_cache_precision: 'float16' needs a processor that converts float16 (F16C); use 'float32'"
        )
    if kept == "int16" and not laid_out:
        raise ConfigError(
            f"parameter kv_cache_precision: 'int16' needs heads of a multiple of {int16_kv.SIZES} dimensions, not "
            f"{head_dim}, and tokens_per_block a multiple of {int16_kv.RUN}, not "
            f"{config.tokens_per_block}; use 'float32'"
        )
    if activations == "int8" and weights == "float32":
        raise ConfigError("parameter activation_precision: 'int8' needs weight_precision=int8")
    narrow = weights == "int8"
    fast = narrow and byte_tile.supported()
    if kept != "auto":
        pool = getattr(torch, kept)
    elif fast and laid_out and activations != "int16":
        pool = torch.int16
    else:
        pool = torch.float16 if narrow and half.supported() else torch.float32
    if activations == "auto":
        activations = "int8" if fast and (config.batch_invariant or pool == torch.int16) else "int16"
    return CpuNumbers(weights, activations, pool, config.batch_invariant or activations == "int8")
