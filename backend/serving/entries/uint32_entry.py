"""The Triton Server model ``ensemble_uint32``: the ensemble's names for clients that send counts as UINT32.

langchain-nvidia-trt does. Triton Server compares a tensor's type with the configuration before any model sees it, so
such a client needs a model of another configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from backend.errors import InvalidRequest
from backend.serving.entries.engine_call import Renderer
from backend.serving.entries.json_values import within
from backend.serving.entries.text_entry import TextEntry
from backend.serving.entries.text_piece import TextPiece
from backend.serving.entries.text_request import TextRequest
from backend.serving.inputs import Inputs, Tensors, word_list
from backend.serving.response_stream import Failure
from backend.text.token_bytes import TokenBytes

_MAX_COUNT = (1 << 31) - 1
_INTEGERS: Mapping[str, str] = {
    "max_tokens": "request_output_len",
    "top_k": "runtime_top_k",
    "beam_width": "beam_width",
    "random_seed": "seed",
    "priority": "priority",
}
_COUNTS = ("max_tokens", "top_k", "beam_width")
_REALS: Mapping[str, str] = {
    "temperature": "temperature",
    "top_p": "runtime_top_p",
    "length_penalty": "len_penalty",
    "repetition_penalty": "repetition_penalty",
}
_BESIDE_STOP = ("input_ids", "input_lengths", "request_output_len")
_NEUTRAL: Mapping[str, object] = {"beam_width": 1, "len_penalty": 1.0, "repetition_penalty": 1.0}


class Uint32Entry(TextEntry):
    """Text in, text out; ``stop`` with the same request id ends a request."""

    def read(self, inputs: Inputs, parameters: dict[str, object]) -> TextRequest:
        """The ensemble's inputs under the engine's names."""
        parameters.pop("Streaming", None)  # which langchain-nvidia-trt sends with a stop
        for name in _BESIDE_STOP:
            if name in inputs:
                raise InvalidRequest(name, "is taken with stop alone, an answer is asked for by text_input")
        for name in _COUNTS:
            within(name, inputs.integer(name, 0), 0, _MAX_COUNT)
        engine: dict[str, object] = {to: inputs.integer(name) for name, to in _INTEGERS.items() if name in inputs}
        engine |= {to: inputs.real(name, 0.0) for name, to in _REALS.items() if name in inputs}
        engine = {name: value for name, value in engine.items() if _NEUTRAL.get(name) != value}
        if stops := word_list(inputs.strings("stop_words")):
            engine["stop_words"] = [stop.encode() for stop in stops]
        streaming = inputs.boolean("stream", False)
        inputs.integer("max_tokens")  # required, with the name that the client knows
        return TextRequest(
            text=inputs.string("text_input").encode(),
            engine=engine,
            streaming=streaming,
            num_sequences=int(str(engine.get("beam_width", 1))),
            echo=not (streaming or inputs.boolean("exclude_input_in_output", False)),
        )

    def renderer(self, request: TextRequest) -> Renderer:
        """The text under the ensemble's name."""
        return _Renderer(request, self.token_bytes)


class _Renderer:
    def __init__(self, request: TextRequest, token_bytes: TokenBytes) -> None:
        self._prefix = request.text.decode() if request.echo else ""
        self._token_bytes = token_bytes

    def render(self, outputs: Tensors) -> tuple[Tensors | Failure | None, bool]:
        """One element per beam, as TensorRT-LLM's detokenizer gives it, no further dimension."""
        piece = TextPiece.read(outputs, self._token_bytes)
        return self._response([self._prefix + text for text in piece.beams], piece.reason), bool(piece.reason)

    def cancelled(self) -> Tensors | Failure:
        """No text."""
        return self._response([""], "cancelled")

    def _response(self, texts: list[str], reason: str) -> Tensors:
        return {
            "text_output": np.array([text.encode() for text in texts], np.object_),
            "finish_reason": np.array([[reason.encode()]], np.object_),
        }
