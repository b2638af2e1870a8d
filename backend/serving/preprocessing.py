"""The Triton Server model ``preprocessing``: text -> token ids."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from backend.errors import InvalidRequest
from backend.serving.inputs import Inputs, as_array
from backend.serving.response_stream import Failure
from backend.serving.triton_io import error_response, parameters_of, read_inputs
from backend.text.prompt_tokenizer import PromptTokenizer

_SHOWN_NAMES = {"QUERY": "text_input"}


class Preprocessing:
    """Tokenizes the prompt and asks the engine for text."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the tokenizer of parameter ``tokenizer_dir``; ``add_special_tokens`` (default true) adds its BOS."""
        parameters = parameters_of(args)
        adds_special = parameters.get("add_special_tokens", "").lower() != "false"
        try:
            self._tokenizer = PromptTokenizer(Path(parameters.get("tokenizer_dir", "")), adds_special)
        except (ValueError, OSError) as error:
            raise pb_utils.TritonModelException(f"parameter tokenizer_dir: {error}") from error

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response per request; an invalid one gets its own error."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            ids = self._encode(read_inputs(request, _SHOWN_NAMES))
        except InvalidRequest as error:
            return error_response(Failure(str(error), "INVALID_ARG"))
        return pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor("INPUT_ID", as_array(ids, np.int32)),
                pb_utils.Tensor("REQUEST_INPUT_LEN", as_array([len(ids)], np.int32)),
                pb_utils.Tensor("DETOKENIZE", as_array([True], np.bool_)),
            ]
        )

    def _encode(self, inputs: Inputs) -> list[int]:
        ids = self._tokenizer.encode(inputs.string("QUERY"))
        if not ids:
            raise InvalidRequest(inputs.shown("QUERY"), "holds no token, at least 1 is needed")
        return ids
