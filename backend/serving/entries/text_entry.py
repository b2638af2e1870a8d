"""TextEntry: what entries with text on both sides have in common: the tokenizer before the engine, text after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from backend.serving.entries.engine_call import Renderer, RequestFailed
from backend.serving.entries.entry import Entry, Prompt
from backend.serving.entries.text_request import TextRequest
from backend.serving.inputs import Inputs, Tensors, as_array
from backend.text.token_bytes import TokenBytes

_ENGINE_NAMES = {"INPUT_ID": "input_ids", "BAD_WORDS_IDS": "bad_words_list"}


class TextEntry(Entry):
    """Subclasses read a request in their language, and say how its answer is written in it."""

    def read(self, inputs: Inputs, parameters: dict[str, object]) -> TextRequest:
        """Raises InvalidRequest. What is left in ``parameters`` goes to the engine."""
        raise NotImplementedError

    def renderer(self, request: TextRequest) -> Renderer:
        """How the request's answer is written."""
        raise NotImplementedError

    def load(self, parameters: Mapping[str, str]) -> None:
        """Read the token table of parameter ``tokenizer_dir``."""
        self._tokenizer_model = parameters.get("tokenizer_model") or "preprocessing"
        try:
            self.token_bytes = TokenBytes.from_directory(Path(parameters.get("tokenizer_dir", "")))
        except (ValueError, OSError) as error:
            raise ValueError(f"parameter tokenizer_dir: {error}") from error

    def parse(self, inputs: Inputs, parameters: dict[str, object], wanted: frozenset[str]) -> list[Prompt]:  # noqa: ARG002
        """One prompt per request."""
        level = self.level(inputs, parameters)
        request = self.read(inputs, parameters)
        asked = request.engine.get("priority", level)
        return [
            Prompt(request.outputs(), self._preparation(request), self.renderer(request), self.order(int(str(asked))))
        ]

    def _preparation(self, request: TextRequest) -> Callable[[], Tensors]:
        tensors = request.tensors()
        return lambda: self._tokenized(request) | tensors

    def _tokenized(self, request: TextRequest) -> dict[str, Any]:
        """Ask the tokenizing model for the prompt's ids, and those of the bad words."""
        asked = {"QUERY": [request.text]} | ({"BAD_WORDS_DICT": request.bad_words} if request.bad_words else {})
        response = pb_utils.InferenceRequest(
            model_name=self._tokenizer_model,
            requested_output_names=[],
            inputs=[pb_utils.Tensor(name, as_array(values, np.object_)) for name, values in asked.items()],
        ).exec()
        if response.has_error():
            raise RequestFailed.of(response)
        outputs = {tensor.name(): np.array(tensor.as_numpy()) for tensor in response.output_tensors()}
        return {engine: outputs[name] for name, engine in _ENGINE_NAMES.items() if name in outputs}
