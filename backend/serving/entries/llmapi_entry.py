"""The Triton Server model ``llmapi``: the inputs and outputs of TensorRT-LLM's newest model, before the engine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from backend.errors import InvalidRequest
from backend.serving.entries.engine_call import Renderer
from backend.serving.entries.refusals import refuse_unserved
from backend.serving.entries.text_entry import TextEntry
from backend.serving.entries.text_piece import TextPiece, cumulative
from backend.serving.entries.text_request import LLMAPI_MAX_TOKENS, TextRequest
from backend.serving.inputs import Inputs, Tensors, word_list
from backend.serving.response_stream import Failure
from backend.text.token_bytes import TokenBytes

_CANCELLED = Failure("Request cancelled by client", "CANCELLED")
_PREFIX = "sampling_param_"
_INTEGERS: Mapping[str, str] = {"top_k": "runtime_top_k", "max_tokens": "request_output_len", "seed": "seed"}
_REALS: Mapping[str, str] = {
    "temperature": "temperature",
    "top_p": "runtime_top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
_FLAGS: Mapping[str, str] = {
    "return_finish_reason": "finish_reason",
    "return_stop_reason": "stop_reason",
    "return_cumulative_logprob": "cumulative_logprob",
}
_METRICS: Mapping[str, str] = {
    "kv_cache_reused_blocks": "kv_cache_reused_block",
    "kv_cache_alloc_new_blocks": "kv_cache_alloc_new_blocks",
    "kv_cache_alloc_total_blocks": "kv_cache_alloc_total_blocks",
    "arrival_time_ns": "arrival_time_ns",
    "first_scheduled_time_ns": "first_scheduled_time_ns",
    "first_token_time_ns": "first_token_time_ns",
    "last_token_time_ns": "last_token_time_ns",
}
"""Output of the engine -> output of this entry, where metrics were asked for."""


class LlmapiEntry(TextEntry):
    """Shapes without a batch dimension. A stream's responses each hold the whole text so far, as upstream's do."""

    def read(self, inputs: Inputs, parameters: dict[str, object]) -> TextRequest:  # noqa: ARG002
        """``sampling_param_*`` under the engine's names."""
        refuse_unserved(inputs)
        best_of = inputs.integer(_PREFIX + "best_of", 1)
        if best_of != 1:
            raise InvalidRequest(_PREFIX + "best_of", f"{best_of} is not supported, allowed is 1")
        engine: dict[str, object] = {"request_output_len": LLMAPI_MAX_TOKENS}
        engine |= {to: inputs.integer(_PREFIX + name) for name, to in _INTEGERS.items() if _PREFIX + name in inputs}
        engine |= {to: inputs.real(_PREFIX + name, 0.0) for name, to in _REALS.items() if _PREFIX + name in inputs}
        engine |= {name: inputs.integer(name) for name in ("priority",) if name in inputs}
        if stops := word_list(inputs.strings(_PREFIX + "stop")):
            engine["stop_words"] = [stop.encode() for stop in stops]
        flags = {output for flag, output in _FLAGS.items() if inputs.boolean(flag, False)}
        if "cumulative_logprob" in flags:
            engine["return_log_probs"] = True
        if inputs.boolean(_PREFIX + "return_perf_metrics", False):
            engine["return_perf_metrics"] = True
            flags |= set(_METRICS.values())
        return TextRequest(
            text=inputs.string("text_input").encode(),
            engine=engine,
            streaming=inputs.boolean("streaming", False),
            echo=not inputs.boolean(_PREFIX + "exclude_input_from_output", False),
            flags=frozenset(flags),
        )

    def renderer(self, request: TextRequest) -> Renderer:
        """One response, or the text so far in each."""
        return _LlmapiRenderer(request, self.token_bytes)


class _LlmapiRenderer:
    def __init__(self, request: TextRequest, token_bytes: TokenBytes) -> None:
        self._flags = request.flags
        self._token_bytes = token_bytes
        self._text = request.text.decode() if request.echo else ""
        self._cumulative = 0.0

    def render(self, outputs: Tensors) -> tuple[Tensors | Failure | None, bool]:
        """Whoever cancels gets an error, as upstream."""
        piece = TextPiece.read(outputs, self._token_bytes)
        if piece.reason == "cancelled":
            return _CANCELLED, True
        self._text += piece.text
        self._cumulative += cumulative(piece.log_probs)
        reason = {"eos": "stop"}.get(piece.reason, piece.reason)
        shown = {
            "text_output": np.array([self._text.encode()], np.object_),
            "finish_reason": np.array([reason.encode()], np.object_),
            "stop_reason": np.array([b"stop string" if piece.reason == "stop" else b""], np.object_),
            "cumulative_logprob": np.array([self._cumulative], np.float32),
        } | {to: outputs[name].reshape(-1) for name, to in _METRICS.items() if name in outputs}
        return {n: array for n, array in shown.items() if n == "text_output" or n in self._flags}, bool(piece.reason)

    def cancelled(self) -> Tensors | Failure:
        """The same error."""
        return _CANCELLED
