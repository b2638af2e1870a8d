"""Tensors of a model directory by name, memory-mapped from its safetensors files."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backend.model.config_file import ConfigFile
from backend.model.errors import WeightsError

_LOG = logging.getLogger(__name__)
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_SHOWN = 10  # problems named in one message


class WeightFiles:
    """The tensors of a model directory; reads nothing but headers until a tensor is asked for."""

    def __init__(self, path: str | Path) -> None:
        """Open ``model.safetensors``, or the shards that ``model.safetensors.index.json`` names.

        Raises:
            WeightsError: neither is there, or a file is damaged.
        """
        self._directory = Path(path)
        self._file_of: dict[str, Any] = {}
        for shard in self._shards():
            handle = self._open(shard)
            self._file_of.update(dict.fromkeys(handle.keys(), handle))

    def check(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        """Compare names and shapes with what is expected; extra tensors are logged, not refused.

        Raises:
            WeightsError: names what is missing or misshapen, with expected and found shape.
        """
        problems = [problem for name, shape in expected.items() if (problem := self._problem(name, shape)) is not None]
        if problems:
            more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
            raise WeightsError(f"{self._directory}:\n  " + "\n  ".join(problems[:_SHOWN]) + more)
        unused = sorted(self._file_of.keys() - expected.keys())
        if unused:
            _LOG.info("%s: %d tensors are not used, %s first", self._directory, len(unused), unused[0])

    def read(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        """One tensor. Where neither dtype nor device changes, its memory is the file's, mapped.

        Raises:
            WeightsError: its elements are not floating-point, as quantized weights are.
        """
        tensor: Tensor = self._file_of[name].get_tensor(name)
        if not tensor.is_floating_point():
            raise WeightsError(f"{self._directory}: tensor {name} is {tensor.dtype}, expected floating point")
        return tensor.to(device=device, dtype=dtype)

    def _shards(self) -> list[Path]:
        index = self._directory / _INDEX
        if index.exists():
            weight_map = ConfigFile.load(index).section("weight_map")
            return [self._directory / weight_map.text(name) for name in _first_of_each(weight_map.values)]
        if (self._directory / _SINGLE).exists():
            return [self._directory / _SINGLE]
        raise WeightsError(f"{self._directory}: neither {_SINGLE} nor {_INDEX} is there")

    def _open(self, path: Path) -> Any:
        # Imported here: scripts/gpu_check, which reads no files, must not need it.
        from safetensors import SafetensorError, safe_open

        try:
            return safe_open(path, framework="pt", device="cpu")
        except (OSError, SafetensorError) as error:
            raise WeightsError(f"{path}: cannot be read: {error}") from error

    def _problem(self, name: str, shape: tuple[int, ...]) -> str | None:
        if name not in self._file_of:
            return f"tensor {name} is missing: expected shape {list(shape)}"
        found = self._file_of[name].get_slice(name).get_shape()
        if tuple(found) != shape:
            return f"tensor {name} is misshapen: expected shape {list(shape)}, found {list(found)}"
        return None


def _first_of_each(file_of: Mapping[str, Any]) -> list[str]:
    """One tensor name per distinct file, so that each file is opened once."""
    return list({str(file): name for name, file in file_of.items()}.values())
