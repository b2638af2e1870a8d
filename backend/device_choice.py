"""Which device the model runs on, and in what numbers: asked for, or found."""

from __future__ import annotations

from pathlib import Path

import torch

from backend.config import EngineConfig
from backend.errors import ConfigError
from backend.executor.accelerator import why_unavailable
from backend.model.config_file import ConfigFile

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def chosen_device(config: EngineConfig) -> str:
    """``"cuda"`` or ``"cpu"``. AMD's GPUs answer to torch's name ``cuda`` too.

    Raises ConfigError, naming the knob, for a GPU where none is and for knobs that the device does not have.
    """
    missing = why_unavailable()
    if config.device == "cuda" and missing:
        raise ConfigError(f"parameter device: 'cuda' is asked for, but {missing}; use 'cpu' or 'auto'")
    device = "cpu" if missing or config.device == "cpu" else "cuda"
    if device == "cpu" and config.dtype not in ("auto", "float32"):
        raise ConfigError(
            f"parameter dtype: {config.dtype!r} needs a GPU; the CPU computes in float32 (smaller matrices: "
            "weight_precision=int8)"
        )
    if device == "cuda" and config.weight_precision == "int8":
        raise ConfigError("parameter weight_precision: 'int8' is the CPU's; a GPU takes dtype instead")
    for name in ("activation_precision", "kv_cache_precision"):
        if device == "cuda" and getattr(config, name) != "auto":
            raise ConfigError(f"parameter {name}: {getattr(config, name)!r} is the CPU's; a GPU takes dtype instead")
    if device == "cuda" and config.batch_invariant:
        raise ConfigError(
            "parameter batch_invariant: true needs device=cpu; a GPU's matrix products depend on the batch"
        )
    return device


def gpu_dtype(config: EngineConfig) -> torch.dtype:
    """What weights and pool are kept in: as asked, else as the checkpoint's config.json says, else bfloat16.

    Raises ConfigError for a checkpoint of another kind.
    """
    named = config.dtype
    if named == "auto":
        file = ConfigFile.load(Path(config.model_dir) / "config.json")
        # transformers 5 writes the second name, all before it the first.
        named = file.text("torch_dtype", file.text("dtype", "bfloat16")).removeprefix("torch.")
    if named not in _DTYPES:
        raise ConfigError(f"parameter dtype: the checkpoint is in {named!r}; choose one of {', '.join(_DTYPES)}")
    return _DTYPES[named]
