"""TextRequest: what a text entry has read in its client's language, in the engine's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

LLMAPI_MAX_TOKENS = 32
"""Of whoever gives no ``sampling_param_max_tokens``: TensorRT-LLM's default."""

DTYPES: Mapping[str, type[np.generic]] = {
    "request_output_len": np.int32,
    "streaming": np.bool_,
    "temperature": np.float32,
    "runtime_top_k": np.int32,
    "runtime_top_p": np.float32,
    "min_p": np.float32,
    "seed": np.uint64,
    "end_id": np.int32,
    "ignore_eos": np.bool_,
    "num_return_sequences": np.int32,
    "stop_words": np.object_,
    "stop_token_ids": np.int32,
    "repetition_penalty": np.float32,
    "presence_penalty": np.float32,
    "frequency_penalty": np.float32,
    "min_tokens": np.int32,
    "logit_bias_ids": np.int32,
    "logit_bias_weights": np.float32,
    "guided_decoding_guide_type": np.object_,
    "guided_decoding_guide": np.object_,
    "return_log_probs": np.bool_,
    "num_log_probs": np.int32,
    "return_perf_metrics": np.bool_,
    "beam_width": np.int32,
    "len_penalty": np.float32,
    "priority": np.int32,
    "tenant": np.object_,
    "cache_salt": np.object_,
}
"""Engine inputs that text entries set, with their dtypes."""

OUTPUTS = ("text_ids", "text_span", "sequence_index", "finish_reason", "num_input_tokens", "num_output_tokens")
_EXTRA_OUTPUTS = {
    "return_log_probs": ("output_ids", "output_log_probs"),
    "num_log_probs": ("top_log_prob_ids", "top_log_probs"),
    "return_perf_metrics": (
        "kv_cache_reused_blocks",
        "kv_cache_alloc_new_blocks",
        "kv_cache_alloc_total_blocks",
        "arrival_time_ns",
        "first_scheduled_time_ns",
        "first_token_time_ns",
        "last_token_time_ns",
    ),
}
"""Flag of the engine -> what it makes the engine say."""


@dataclass(kw_only=True)
class TextRequest:
    """engine: inputs of the engine by name; values are numbers, or lists of numbers or bytes.

    echo: whether a whole answer begins with the prompt. flags: the outputs that the client asked for by a flag.
    log_probs: whether each token's are to be shown.
    """

    text: bytes
    engine: dict[str, object]
    streaming: bool
    num_sequences: int = 1
    echo: bool = False
    bad_words: list[bytes] = field(default_factory=list)
    flags: frozenset[str] = frozenset()
    log_probs: bool = False

    def outputs(self) -> tuple[str, ...]:
        """Those of the engine that the answer is made of."""
        asked = [flag for flag in _EXTRA_OUTPUTS if self.engine.get(flag)]
        return (*OUTPUTS, *(name for flag in asked for name in _EXTRA_OUTPUTS[flag]))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The engine's inputs but for the prompt. The entry puts an echo before the text itself, as it was written."""
        values = {"streaming": self.streaming, "num_return_sequences": self.num_sequences, **self.engine}
        own = {"detokenize": True, "exclude_input_in_output": True}
        arrays = {name: np.atleast_1d(np.array(value, DTYPES[name])) for name, value in values.items()}
        arrays |= {name: np.array([value], np.bool_) for name, value in own.items()}
        return {name: array[None] for name, array in arrays.items()}
