"""A small model's request parser, and the tensors that tests give it."""

import numpy as np

from backend.serving.beam_inputs import BeamLimits
from backend.serving.inputs import Inputs
from backend.serving.request_parser import SHOWN_NAMES, ParsedRequest, RequestParser

PARSER = RequestParser(
    vocab_size=100,
    eos_ids=frozenset({7, 8}),
    priority_levels=3,
    default_level=2,
    echo_by_default=True,
    beams=BeamLimits(4),
)


def tensor(values: object, dtype: type = np.int32) -> np.ndarray:
    return np.asarray(values, dtype=dtype)[None]


def parse(custom: str = "", **fields: np.ndarray) -> ParsedRequest:
    tensors = {"input_ids": tensor([1, 2, 3]), "request_output_len": tensor([5])} | fields
    return PARSER.parse(Inputs({k: v for k, v in tensors.items() if v is not None}, SHOWN_NAMES), custom)


def f32(value: float) -> np.ndarray:
    return tensor([value], np.float32)


def words(*values: str | bytes) -> np.ndarray:
    return tensor([v if isinstance(v, bytes) else v.encode() for v in values], np.object_)


YES, NO = tensor([True], np.bool_), tensor([False], np.bool_)
GUIDE_TYPE, GUIDE = "guided_decoding_guide_type", "guided_decoding_guide"
BEAMS = {"beam_width": tensor([3])}


def bias(ids: list[int], weights: list[float]) -> dict[str, np.ndarray]:
    return {"logit_bias_ids": tensor(ids), "logit_bias_weights": tensor(weights, np.float32)}
