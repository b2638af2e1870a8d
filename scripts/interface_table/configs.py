"""What the models' config.pbtxt files declare."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

REPOSITORY = Path(__file__).resolve().parents[2] / "model_repository"
ENTRIES = (
    "ensemble",
    "tensorrt_llm_bls",
    "ensemble_uint32",
    "tensorrt_llm",
    "inflight_batcher",
    "vllm_model",
    "llmapi",
)
"""The models that clients call, in the order in which tables name them."""


class Tensor(NamedTuple):
    """A declared input or output. datatype: as clients name it; dims: without the batch dimension."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    required: bool


class Model(NamedTuple):
    """A model's declarations. batched: whether shapes on the wire have a batch dimension in front."""

    name: str
    batched: bool
    inputs: list[Tensor]
    outputs: list[Tensor]


def models(repository: Path = REPOSITORY) -> dict[str, Model]:
    """All models of a repository by name, the entries first."""
    found = [_model(path) for path in sorted(repository.glob("*/config.pbtxt"))]
    order = {name: place for place, name in enumerate(ENTRIES)}
    return {model.name: model for model in sorted(found, key=lambda m: (order.get(m.name, len(order)), m.name))}


def _model(path: Path) -> Model:
    config = text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
    inputs = [_tensor(each, not each.optional) for each in config.input]
    return Model(config.name, config.max_batch_size > 0, inputs, [_tensor(each, True) for each in config.output])


def _tensor(declared: model_config_pb2.ModelInput | model_config_pb2.ModelOutput, required: bool) -> Tensor:
    datatype = model_config_pb2.DataType.Name(declared.data_type).removeprefix("TYPE_").replace("STRING", "BYTES")
    return Tensor(declared.name, datatype, tuple(declared.dims), required)
