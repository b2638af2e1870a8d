"""The Triton Server model ``tensorrt_llm``: TensorRT-LLM's token model, in front of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from backend.serving.entries.entry import Entry, Prompt
from backend.serving.entries.token_inputs import prompts_of
from backend.serving.inputs import Inputs, Tensors, as_array
from backend.serving.response_stream import Failure

_HIDDEN = ("engine_key",)
_OWN = {"finish_reason", "batch_index"}


class TokenEntry(Entry):
    """Token ids in, token ids out. The n prompts of a batch are n requests, told apart by ``batch_index``."""

    def parse(self, inputs: Inputs, parameters: dict[str, object], wanted: frozenset[str]) -> list[Prompt]:
        """One prompt per row of ``input_ids``."""
        level = self.level(inputs, parameters)
        rows = prompts_of(inputs, parameters)
        counts = [1] * len(rows)
        if "num_return_sequences" in inputs:
            counts = inputs.array("num_return_sequences").reshape(-1).tolist()
        if "beam_width" in inputs:  # all beams come in one response
            widths = inputs.array("beam_width").reshape(-1).tolist()
            counts = [count if width == 1 else 1 for count, width in zip(counts, widths, strict=True)]
        several = len(rows) > 1
        outputs = ("finish_reason", *sorted(wanted - _OWN))
        return [
            Prompt(outputs, partial(_given, row), _TokenRenderer(index if several else None, count), level)
            for index, (row, count) in enumerate(zip(rows, counts, strict=True))
        ]


def _given(row: Tensors) -> Tensors:
    return row


@dataclass
class _TokenRenderer:
    """batch_index: of the prompt, None where it is alone. open_sequences: of its answers."""

    batch_index: int | None
    open_sequences: int

    def __post_init__(self) -> None:
        self._several = self.open_sequences > 1

    def render(self, outputs: Tensors) -> tuple[Tensors, bool]:
        """The engine's response under the same names, with the index of the prompt, and that of the sequence."""
        self.open_sequences -= outputs["finish_reason"].reshape(-1)[0] != b""
        return self._tagged(outputs), self.open_sequences <= 0

    def cancelled(self) -> Tensors | Failure:
        """No token, ended because the client wished it."""
        nothing = {
            "output_ids": np.zeros((1, 1, 0), np.int32),
            "sequence_length": as_array([0], np.int32),
            "finish_reason": as_array([b"cancelled"], np.object_),
        }
        return self._tagged(nothing)

    def _tagged(self, outputs: Tensors) -> Tensors:
        hidden = (*_HIDDEN, *(() if self._several else ("sequence_index",)))
        shown = {name: array for name, array in outputs.items() if name not in hidden}
        if self.batch_index is not None:
            shown["batch_index"] = as_array([self.batch_index], np.int32)
        return shown
