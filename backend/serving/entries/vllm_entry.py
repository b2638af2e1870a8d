"""The Triton Server model ``vllm_model``: the inputs and outputs of Triton Server's vLLM backend, before the engine."""

from __future__ import annotations

from collections.abc import Mapping

from backend.errors import InvalidRequest
from backend.serving.entries.engine_call import Renderer
from backend.serving.entries.refusals import refuse_unserved
from backend.serving.entries.text_entry import TextEntry
from backend.serving.entries.text_request import TextRequest
from backend.serving.entries.vllm_parameters import parameters_of
from backend.serving.entries.vllm_renderer import VllmRenderer
from backend.serving.inputs import Inputs

_FLAGS: Mapping[str, str] = {
    "return_finish_reason": "finish_reason",
    "return_cumulative_logprob": "cumulative_logprob",
    "return_logprobs": "logprobs",
    "return_num_input_tokens": "num_input_tokens",
    "return_num_output_tokens": "num_output_tokens",
}


class VllmEntry(TextEntry):
    """Shapes without a batch dimension; one element of each output per sequence."""

    def read(self, inputs: Inputs, parameters: dict[str, object]) -> TextRequest:
        """Sampling parameters as JSON, or as the request's own parameters."""
        refuse_unserved(inputs)
        streaming = inputs.boolean("stream", False)
        echo = not inputs.boolean("exclude_input_in_output", streaming)
        if streaming and echo:
            raise InvalidRequest(
                "exclude_input_in_output", "false is not allowed when streaming: a stream never repeats the prompt"
            )
        text = inputs.string("sampling_parameters") if "sampling_parameters" in inputs else ""
        sampling = parameters_of(text, parameters)
        parameters.clear()
        flags = frozenset(output for flag, output in _FLAGS.items() if inputs.boolean(flag, False))
        if "cumulative_logprob" in flags:
            sampling.engine["return_log_probs"] = True
        if sampling.logprobs is not None and "logprobs" not in flags:
            raise InvalidRequest("logprobs", "needs return_logprobs = true to be shown")
        return TextRequest(
            text=inputs.string("text_input").encode(),
            engine=sampling.engine,
            streaming=streaming,
            num_sequences=sampling.num_sequences,
            echo=echo,
            bad_words=sampling.bad_words,
            flags=flags,
            log_probs=sampling.logprobs is not None,
        )

    def renderer(self, request: TextRequest) -> Renderer:
        """Increments where it streams, else one response with all sequences."""
        return VllmRenderer(request, self.token_bytes)
