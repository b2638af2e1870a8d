"""Inputs that an entry declares because clients know them, and that nothing here serves: refused by name when given.

Declared, so that the refusal says why; undeclared, the server would say that there is no such input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.errors import InvalidRequest
from backend.serving.inputs import Inputs


class Refusal(NamedTuple):
    """why: what is not there. neutral: the value that means the same as none, if there is one."""

    why: str
    neutral: float | str | None = None


_NO_ENCODER = "encoder-decoder models are not served"
_NO_DRAFT = "there is no speculative decoding"
_NO_TABLE = "prompt embeddings are not served"
_NO_LORA = "LoRA adapters are not served"
_NO_VISION = "images and videos are not served"

UNSERVED: Mapping[str, Refusal] = {
    "encoder_input_features": Refusal(_NO_ENCODER),
    "encoder_output_lengths": Refusal(_NO_ENCODER),
    "decoder_input_ids": Refusal(_NO_ENCODER),
    "decoder_input_lengths": Refusal(_NO_ENCODER),
    "decoder_text_input": Refusal(_NO_ENCODER, ""),
    "cross_attention_mask": Refusal(_NO_ENCODER),
    "skip_cross_attn_blocks": Refusal(_NO_ENCODER, 0),
    "draft_input_ids": Refusal(_NO_DRAFT),
    "draft_logits": Refusal(_NO_DRAFT),
    "draft_acceptance_threshold": Refusal(_NO_DRAFT),
    "num_draft_tokens": Refusal(_NO_DRAFT, 0),
    "use_draft_logits": Refusal(_NO_DRAFT, 0),
    "lookahead_window_size": Refusal(_NO_DRAFT),
    "lookahead_ngram_size": Refusal(_NO_DRAFT),
    "lookahead_verification_set_size": Refusal(_NO_DRAFT),
    "prompt_embedding_table": Refusal(_NO_TABLE),
    "prompt_table_extra_ids": Refusal(_NO_TABLE),
    "prompt_table_extra_id": Refusal(_NO_TABLE),
    "prompt_vocab_size": Refusal(_NO_TABLE, 0),
    "mrope_rotary_cos_sin": Refusal(_NO_VISION),
    "mrope_position_deltas": Refusal(_NO_VISION),
    "image": Refusal(_NO_VISION),
    "image_url": Refusal(_NO_VISION),
    "lora_task_id": Refusal(_NO_LORA, 0),
    "lora_weights": Refusal(_NO_LORA),
    "lora_config": Refusal(_NO_LORA),
    "lora_id": Refusal(_NO_LORA, 0),
    "lora_name": Refusal(_NO_LORA, ""),
    "lora_path": Refusal(_NO_LORA, ""),
    "lora_ckpt_source": Refusal(_NO_LORA, ""),
    "context_phase_params": Refusal("prompts and answers are computed in one place"),
    "embedding_request": Refusal("embeddings are not served", ""),
}


def refuse_unserved(inputs: Inputs) -> None:
    """Raise InvalidRequest for the first input given that is not served, unless its value is as good as none."""
    for name, refusal in UNSERVED.items():
        if name in inputs and not _is_neutral(inputs.array(name), refusal.neutral):
            raise InvalidRequest(inputs.shown(name), f"is not supported: {refusal.why}")


def _is_neutral(values: NDArray[Any], neutral: float | str | None) -> bool:
    if neutral is None:
        return False
    if isinstance(neutral, str):
        return all(value in (neutral, neutral.encode()) for value in values.reshape(-1).tolist())
    return bool(np.all(values == neutral))
