"""Where the model runs: asked for, or found; what a device does not have is refused by name."""

import json
from pathlib import Path

import pytest
import torch

from backend.config import EngineConfig
from backend.device_choice import chosen_device, gpu_dtype
from backend.engine_builder import build_engine
from backend.errors import ConfigError


@pytest.fixture
def gpu_is(monkeypatch: pytest.MonkeyPatch):
    return lambda there: monkeypatch.setattr(torch.cuda, "is_available", lambda: there)


def config(**knobs: str) -> EngineConfig:
    return EngineConfig.from_parameters({"model_dir": "nowhere", **knobs})


@pytest.mark.parametrize(
    ("asked", "there", "expected"),
    [("auto", False, "cpu"), ("auto", True, "cuda"), ("cpu", True, "cpu"), ("cuda", True, "cuda")],
)
def test_the_device_is_the_one_asked_for_or_the_gpu_if_there_is_one(gpu_is, asked, there, expected) -> None:
    gpu_is(there)
    assert chosen_device(config(device=asked)) == expected


def test_a_gpu_that_is_not_there_is_refused_with_what_was_found(gpu_is) -> None:
    gpu_is(False)
    with pytest.raises(ConfigError) as caught:
        build_engine(config(device="cuda"))
    message = str(caught.value)
    assert message.startswith(f"parameter device: 'cuda' is asked for, but torch {torch.__version__} ")
    assert message.endswith("; use 'cpu' or 'auto'")
    assert "\n" not in message


def test_a_device_of_another_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match="parameter device: 'tpu' is out of range, allowed is one of auto, cpu, cuda"):
        config(device="tpu")


def test_the_cpu_refuses_narrow_numbers_and_a_gpu_the_cpus_precision(gpu_is) -> None:
    gpu_is(False)
    with pytest.raises(ConfigError, match="parameter dtype: 'bfloat16' needs a GPU; the CPU computes in float32"):
        chosen_device(config(dtype="bfloat16"))
    assert chosen_device(config(dtype="float32")) == "cpu"
    gpu_is(True)
    with pytest.raises(ConfigError, match="parameter weight_precision: 'int8' is the CPU's"):
        chosen_device(config(weight_precision="int8"))
    assert chosen_device(config(weight_precision="int8", device="cpu")) == "cpu"
    with pytest.raises(ConfigError, match="parameter kv_cache_precision: 'float16' is the CPU's"):
        chosen_device(config(kv_cache_precision="float16"))
    with pytest.raises(ConfigError, match="parameter activation_precision: 'int8' is the CPU's"):
        chosen_device(config(activation_precision="int8"))


@pytest.mark.parametrize(
    ("values", "asked", "expected"),
    [
        ({"torch_dtype": "float16"}, "auto", torch.float16),
        ({"dtype": "bfloat16"}, "auto", torch.bfloat16),
        ({"torch_dtype": "float32"}, "auto", torch.float32),
        ({}, "auto", torch.bfloat16),
        ({"torch_dtype": "float16"}, "bfloat16", torch.bfloat16),
    ],
)
def test_on_a_gpu_numbers_are_the_checkpoints_unless_others_are_asked_for(
    tmp_path: Path, values: dict[str, str], asked: str, expected: torch.dtype
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert gpu_dtype(config(model_dir=str(tmp_path), dtype=asked)) is expected


def test_a_checkpoint_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"torch_dtype": "float64"}')
    with pytest.raises(ConfigError, match="the checkpoint is in 'float64'; choose one of bfloat16, float16, float32"):
        gpu_dtype(config(model_dir=str(tmp_path)))
