"""The Triton Server model ``postprocessing``: token ids -> text, stateless across responses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from backend.errors import ConfigError, InvalidRequest
from backend.serving.inputs import Inputs
from backend.serving.now_and_then import NowAndThen
from backend.serving.stops import stop
from backend.serving.triton_io import NOBODYS_KEY, ServerLog, answered, check_no_batching, parameters_of, read_inputs
from backend.text.text_stream import TextSpan
from backend.text.token_bytes import TokenBytes

_FAILED = "the tokens could not be turned into text"
_ASK_SECONDS = 0.2  # between two questions whether a stream's client has gone, each a round trip to the server


class Postprocessing:
    """Shows the bytes of TEXT_SPAN out of the tokens of TOKENS_BATCH, row by row; without a span, all of them."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the token table of parameter ``tokenizer_dir``."""
        self._engine = parameters_of(args).get("engine_model", "") or "inflight_batcher"
        self._ask = NowAndThen(_ASK_SECONDS)
        ServerLog.install("warning")
        try:
            check_no_batching(args)
        except ConfigError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        try:
            self._token_bytes = TokenBytes.from_directory(Path(parameters_of(args).get("tokenizer_dir", "")))
        except (ValueError, OSError) as error:
            raise pb_utils.TritonModelException(f"parameter tokenizer_dir: {error}") from error

    def _stop_if_cancelled(self, request: Any, inputs: Inputs) -> None:
        """Tell the engine that the client has gone: it is told so only here, at the step after the engine's.

        Triton Server marks the steps of an ensemble that are yet to come, never the one that is running.
        """
        key = inputs.integer("ENGINE_KEY")
        if key == NOBODYS_KEY or not self._ask.due(key) or not request.is_cancelled():
            return
        stop(self._engine, key=key)

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response per request."""
        return [answered(partial(self._respond, request), _FAILED) for request in requests]

    def _respond(self, request: Any) -> Any:
        inputs = read_inputs(request)
        self._stop_if_cancelled(request, inputs)
        rows = inputs.rows("TOKENS_BATCH")
        lowest = min((id_ for row in rows for id_ in row), default=0)
        if lowest < 0:
            raise InvalidRequest("TOKENS_BATCH", f"{lowest} is no token id, allowed is 0 and more")
        if "TEXT_SPAN" in inputs:
            edges = list(inputs.ids("TEXT_SPAN"))
        else:
            edges = [edge for row in rows for edge in (0, len(self._token_bytes.join(row)))]
        texts = [
            TextSpan(row, start, end).text(self._token_bytes)
            for row, start, end in zip(rows, edges[::2], edges[1::2], strict=True)
        ]
        # One dimension, as TensorRT-LLM's detokenizer has it: its clients decode each element of the first one.
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor("OUTPUT", np.array([text.encode() for text in texts], np.object_))]
        )
