"""In what numbers the CPU keeps matrices, keys and values. It computes in float32, whatever it keeps."""

from __future__ import annotations

import torch

from backend.errors import ConfigError

_NARROW = "float16"


def weight_precision(asked: str) -> str:
    """``"float32"`` or ``"int8"``, from the knob ``weight_precision``."""
    return "int8" if asked == "auto" else asked


def pool_dtype(asked: str, weights: str) -> torch.dtype:
    """What the pool is kept in, from the knob ``kv_cache_precision`` and the weights' precision.

    Beside 8-bit weights float16, which has 8 times as many steps, where the processor converts it by itself: half the
    memory per token, and half the traffic that attention of a decode step is bound by. Beside float32 weights float32.

    Raises ConfigError where float16 is asked for and the processor cannot.
    """
    # Imported here, as numba takes a second to load and a GPU has no use for it.
    from kernels.cpu.half import supported

    if asked == _NARROW and not supported():
        raise ConfigError(
            "parameter kv_cache_precision: 'float16' needs a processor that converts float16 (F16C); use 'float32'"
        )
    narrow = asked == _NARROW or (asked == "auto" and weights == "int8" and supported())
    return torch.float16 if narrow else torch.float32
