"""The Triton Server model ``preprocessing``: text -> token ids."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from backend.errors import InvalidRequest
from backend.serving.inputs import Inputs, as_array
from backend.serving.queue_waker import REQUEST_ID, QueueWaker
from backend.serving.triton_io import ServerLog, all_have_id, answered, parameters_of, read_inputs
from backend.serving.word_inputs import word_outputs
from backend.text.prompt_tokenizer import PromptTokenizer
from backend.text.spellings import Spellings
from backend.text.token_bytes import TokenBytes

_SHOWN_NAMES = {
    "QUERY": "text_input",
    "BAD_WORDS_DICT": "bad_words",
    "EMBEDDING_BIAS_WORDS": "embedding_bias_words",
    "EMBEDDING_BIAS_WEIGHTS": "embedding_bias_weights",
}
_FAILED = "the text could not be turned into tokens"


class Preprocessing:
    """Tokenizes the prompt, and the words that a request forbids or favours, and asks the engine for text."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the tokenizer of parameter ``tokenizer_dir``; ``add_special_tokens`` (default true) adds its BOS."""
        parameters = parameters_of(args)
        ServerLog.install("warning")
        adds_special = parameters.get("add_special_tokens", "").lower() != "false"
        try:
            directory = Path(parameters.get("tokenizer_dir", ""))
            self._tokenizer = PromptTokenizer(directory, adds_special)
            self._spellings = Spellings(self._tokenizer, TokenBytes.from_directory(directory))
        except (ValueError, OSError) as error:
            raise pb_utils.TritonModelException(f"parameter tokenizer_dir: {error}") from error
        self._waker = QueueWaker(partial(_ask_for_nothing, args["model_name"]), times=1)

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response per request; an invalid one gets its own error."""
        with self._waker.executing(for_clients=not all_have_id(requests, REQUEST_ID)):
            return [answered(partial(self._respond, request), _FAILED) for request in requests]

    def finalize(self) -> None:
        """Unload."""
        self._waker.close()

    def _respond(self, request: Any) -> Any:
        inputs = read_inputs(request, _SHOWN_NAMES)
        ids, words = self._encode(inputs), word_outputs(inputs, self._spellings)
        return pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor("INPUT_ID", as_array(ids, np.int32)),
                pb_utils.Tensor("REQUEST_INPUT_LEN", as_array([len(ids)], np.int32)),
                pb_utils.Tensor("DETOKENIZE", as_array([True], np.bool_)),
                *(pb_utils.Tensor(name, values[None]) for name, values in words.items()),
            ]
        )

    def _encode(self, inputs: Inputs) -> list[int]:
        ids = self._tokenizer.encode(inputs.string("QUERY"))
        if not ids:
            raise InvalidRequest(inputs.shown("QUERY"), "holds no token, at least 1 is needed")
        return ids


def _ask_for_nothing(model: str) -> None:
    """A request that this model makes to itself."""
    request = pb_utils.InferenceRequest(
        request_id=REQUEST_ID,
        model_name=model,
        requested_output_names=["REQUEST_INPUT_LEN"],
        inputs=[pb_utils.Tensor("QUERY", as_array([b"."], np.object_))],
    )
    request.exec()
