"""docs/interfaces.md says what the configurations declare, and the two text entries of TensorRT-LLM are one."""

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from backend.serving.entries.vllm_parameters import KNOWN, UNSERVED
from scripts.interface_table.configs import ENTRIES, REPOSITORY, models
from scripts.interface_table.document import PLACE, document
from scripts.interface_table.meanings import INPUTS
from scripts.interface_table.output_meanings import OUTPUTS
from scripts.interface_table.vllm_meanings import VLLM_KEYS


def test_the_document_is_the_one_that_the_script_writes() -> None:
    assert PLACE.read_text(encoding="utf-8") == document(), "run scripts/interfaces"


def test_every_declared_tensor_and_key_has_a_meaning_and_none_is_left_over() -> None:
    found = models()
    inputs = {tensor.name for model in found.values() for tensor in model.inputs}
    outputs = {tensor.name for name in ENTRIES for tensor in found[name].outputs}
    assert inputs - INPUTS.keys() == set()
    assert outputs - OUTPUTS.keys() == set()
    assert VLLM_KEYS.keys() | UNSERVED.keys() == KNOWN
    assert all(meaning.text for meaning in INPUTS.values())


def test_a_tensor_without_a_meaning_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "ensemble"
    source.mkdir()
    (source / "config.pbtxt").write_text('name: "ensemble" input { name: "new" data_type: TYPE_BOOL dims: [ 1 ] }')
    (tensor,) = models(tmp_path)["ensemble"].inputs
    assert (tensor.name, tensor.datatype, tensor.dims, tensor.required) == ("new", "BOOL", (1,), True)
    assert tensor.name not in INPUTS


def _config(name: str) -> model_config_pb2.ModelConfig:
    text = (REPOSITORY / name / "config.pbtxt").read_text(encoding="utf-8")
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def test_tensorrt_llm_bls_is_the_ensemble_under_another_name() -> None:
    ensemble, bls = _config("ensemble"), _config("tensorrt_llm_bls")
    assert bls.name == "tensorrt_llm_bls"
    bls.name = ensemble.name
    assert bls == ensemble


def test_what_the_ensembles_hand_to_a_model_it_declares_with_the_same_type() -> None:
    """Reported of others (case 68): fields declared in one place, missing or of another type in the next."""
    found = models()
    for name in ("ensemble", "tensorrt_llm_bls"):
        own = {tensor.name: tensor.datatype for tensor in found[name].inputs}
        for step in _config(name).ensemble_scheduling.step:
            declared = {tensor.name: tensor.datatype for tensor in found[step.model_name].inputs}
            for theirs, ours in step.input_map.items():
                assert theirs in declared
                assert ours.startswith("_") or own[ours] == declared[theirs]
        mapped = {ours for step in _config(name).ensemble_scheduling.step for ours in step.input_map.values()}
        assert own.keys() <= mapped, "each input goes somewhere"
