"""Writes a safetensors file one tensor at a time.

`safetensors.save_file` wants all tensors in memory at once: four bytes a parameter, which for a model of eight billion
is more than most machines have. Here one tensor is alive at a time. The format is an 8-byte length, a JSON header and
the bytes: https://github.com/huggingface/safetensors#format
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path

from backend.checkpoint.gguf_tensors import Output

ITEM = 4  # bytes of a float32


def write_float32(path: Path, outputs: Iterable[Output], shown: Iterable[Output]) -> None:
    """Write `outputs` as float32 to `path`. `shown` yields the same outputs in the same order, through a progress bar.

    The order is the file's. Raises what `Output.values` raises; leaves a partial file then.
    """
    with path.open("wb") as file:
        file.write(_header(outputs))
        for output in shown:
            file.write(output.values().astype("<f4", copy=False).data)


def _header(outputs: Iterable[Output]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for output in outputs:
        size = math.prod(output.source.shape) * ITEM
        shape = list(output.source.shape)
        entries[output.name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the data are aligned
    return len(text).to_bytes(8, "little") + text
