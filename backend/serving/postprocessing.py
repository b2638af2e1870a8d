"""The Triton Server model ``postprocessing``: token ids -> text, stateless across responses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from backend.serving.inputs import Inputs, as_array
from backend.serving.triton_io import parameters_of, read_inputs
from backend.text.text_stream import TextSpan
from backend.text.token_bytes import TokenBytes


class Postprocessing:
    """Shows the bytes of TEXT_SPAN out of the tokens of TOKENS_BATCH; without a span, all of them."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the token table of parameter ``tokenizer_dir``."""
        try:
            self._token_bytes = TokenBytes.from_directory(Path(parameters_of(args).get("tokenizer_dir", "")))
        except (ValueError, OSError) as error:
            raise pb_utils.TritonModelException(f"parameter tokenizer_dir: {error}") from error

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response per request."""
        return [self._respond(read_inputs(request)) for request in requests]

    def _respond(self, inputs: Inputs) -> Any:
        ids = list(inputs.ids("TOKENS_BATCH"))
        start, end = inputs.ids("TEXT_SPAN") if "TEXT_SPAN" in inputs else (0, len(self._token_bytes.join(ids)))
        text = TextSpan(ids, start, end).text(self._token_bytes)
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor("OUTPUT", as_array([text.encode()], np.object_))]
        )
