import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from backend.model.config import ModelConfig
from backend.model.errors import WeightsError
from backend.model.weights import load_weights
from tests.model.tiny_models import Saved

GetSaved = Callable[[str], Saved]


def spoiled(saved: Saved, path: Path, change: Callable[[dict[str, Tensor]], object]) -> Path:
    """A copy of the model whose single file went through ``change``."""
    directory = path / "copy"
    shutil.copytree(saved.path, directory)
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")
    return directory


def load(directory: Path, **options: object) -> object:
    return load_weights(directory, ModelConfig.from_directory(directory), progress=False, **options)


def test_a_missing_tensor_is_named_with_its_shape(saved: GetSaved, tmp_path: Path) -> None:
    name = "model.layers.1.self_attn.k_proj.weight"
    directory = spoiled(saved("llama-tied"), tmp_path, lambda tensors: tensors.pop(name))
    with pytest.raises(WeightsError, match=rf"{name} is missing: expected shape \[32, 48\]"):
        load(directory)


def test_a_misshapen_tensor_is_named_with_both_shapes(saved: GetSaved, tmp_path: Path) -> None:
    name = "model.layers.2.mlp.down_proj.weight"
    directory = spoiled(saved("llama-tied"), tmp_path, lambda tensors: tensors.update({name: torch.zeros(48, 81)}))
    with pytest.raises(WeightsError, match=rf"{name} is misshapen: expected shape \[48, 80\], found \[48, 81\]"):
        load(directory)


def test_all_problems_are_in_one_message_and_a_long_list_is_cut(saved: GetSaved, tmp_path: Path) -> None:
    directory = spoiled(saved("llama-tied"), tmp_path, lambda tensors: tensors.clear())
    with pytest.raises(WeightsError, match="and 19 more") as caught:
        load(directory)
    assert str(caught.value).count("is missing") == 10


def test_quantized_tensors_are_refused(saved: GetSaved, tmp_path: Path) -> None:
    name = "model.norm.weight"
    directory = spoiled(saved("llama-tied"), tmp_path, lambda t: t.update({name: t[name].to(torch.int8)}))
    with pytest.raises(WeightsError, match=r"model.norm.weight is torch.int8, expected floating point"):
        load(directory)


def test_extra_tensors_are_ignored(saved: GetSaved, tmp_path: Path) -> None:
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8), "lm_head.weight": torch.ones(101, 48)}
    directory = spoiled(saved("llama-tied"), tmp_path, lambda tensors: tensors.update(extra))
    weights = load(directory)
    assert weights.head is weights.embedding


def test_shards_hold_what_a_single_file_would(saved: GetSaved) -> None:
    sharded = saved("llama-untied-sharded")
    assert len(list(sharded.path.glob("*.safetensors"))) > 1
    weights, oracle = load(sharded.path), sharded.oracle.state_dict()
    torch.testing.assert_close(weights.head, oracle["lm_head.weight"])
    for layer, found in enumerate(weights.layers):
        prefix = f"model.layers.{layer}.self_attn."
        expected = torch.cat([oracle[f"{prefix}{part}_proj.weight"] for part in "qkv"])
        torch.testing.assert_close(found.qkv, expected, rtol=0, atol=0)


def test_a_shard_that_is_not_there_is_named(saved: GetSaved, tmp_path: Path) -> None:
    directory = shutil.copytree(saved("llama-untied-sharded").path, tmp_path / "copy")
    shard = sorted(directory.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(WeightsError, match=shard.name):
        load(directory)


def test_a_tensor_missing_from_the_index_is_named(saved: GetSaved, tmp_path: Path) -> None:
    directory = shutil.copytree(saved("llama-untied-sharded").path, tmp_path / "copy")
    index = directory / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    shard = content["weight_map"]["lm_head.weight"]
    content["weight_map"] = {name: file for name, file in content["weight_map"].items() if file != shard}
    index.write_text(json.dumps(content))
    with pytest.raises(WeightsError, match=r"lm_head.weight is missing: expected shape \[101, 48\]"):
        load(directory)


def test_a_directory_without_weights_says_what_it_looked_for(saved: GetSaved, tmp_path: Path) -> None:
    shutil.copy(saved("llama-tied").path / "config.json", tmp_path)
    with pytest.raises(WeightsError, match=r"neither model.safetensors nor model.safetensors.index.json"):
        load(tmp_path)


def test_a_damaged_file_is_named(saved: GetSaved, tmp_path: Path) -> None:
    shutil.copy(saved("llama-tied").path / "config.json", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(WeightsError, match=r"model.safetensors: cannot be read"):
        load(tmp_path)


def test_weights_come_in_the_dtype_asked_for(saved: GetSaved) -> None:
    weights = load(saved("qwen2").path, dtype=torch.bfloat16)
    assert {weights.embedding.dtype, weights.layers[0].qkv.dtype, weights.layers[0].qkv_bias.dtype} == {torch.bfloat16}


def test_the_progress_bar_goes_to_standard_error_and_can_be_off(
    saved: GetSaved, capfd: pytest.CaptureFixture[str]
) -> None:
    path = saved("qwen2").path
    load(path)
    assert capfd.readouterr() == ("", "")
    load_weights(path, ModelConfig.from_directory(path))
    out, err = capfd.readouterr()
    assert out == ""
    assert "100%" in err


def is_mapped(directory: Path) -> bool:
    return str(directory) in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("name", ["llama-tied", "llama-biases", "gemma3-final-cap"])
def test_a_file_whose_matrices_have_been_packed_takes_no_memory(name: str, saved: GetSaved, tmp_path: Path) -> None:
    directory = spoiled(saved(name), tmp_path, lambda tensors: None)
    weights = load(directory, pack=torch.clone)
    assert not is_mapped(directory)
    as_they_are = load(directory, pack=lambda matrix: matrix)
    assert is_mapped(directory)
    del weights, as_they_are
