from __future__ import annotations

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from scripts.launcher.errors import LaunchError
from scripts.launcher.repository import beside, render

from .tiny_models import ECHO_CONFIG, add_model

KEPT = 'parameters { key: "kept" value { string_value: "k" } } parameters { key: "set" value { string_value: "old" } }'


def _rendered(path):
    return text_format.Parse((path / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def test_given_parameters_replace_and_the_others_stay(tmp_path):
    source = add_model(tmp_path / "source", "echo", config=ECHO_CONFIG + KEPT)
    odd = 'a "quoted" C:\\path\nline é'
    assert render(source, tmp_path / "target", {"echo": {"set": odd, "new": "1"}}) == ["echo"]
    parameters = _rendered(tmp_path / "target" / "echo").parameters
    assert {key: value.string_value for key, value in parameters.items()} == {"kept": "k", "set": odd, "new": "1"}


def test_the_source_is_not_touched_and_caches_are_not_copied(tmp_path):
    source = add_model(tmp_path / "source", "echo")
    (source / "echo" / "1" / "__pycache__").mkdir()
    before = (source / "echo" / "config.pbtxt").read_bytes()
    render(source, tmp_path / "target", {"echo": {"new": "1"}})
    assert (source / "echo" / "config.pbtxt").read_bytes() == before
    assert not (tmp_path / "target" / "echo" / "1" / "__pycache__").exists()
    assert (tmp_path / "target" / "echo" / "1" / "model.py").exists()


def test_a_model_without_a_version_directory_gets_one(tmp_path):
    source = tmp_path / "source"
    (source / "ensemble").mkdir(parents=True)
    (source / "ensemble" / "config.pbtxt").write_text('platform: "ensemble"')
    render(source, tmp_path / "target", {})
    assert (tmp_path / "target" / "ensemble" / "1").is_dir()


def test_an_unknown_model_an_empty_source_and_a_broken_config_are_refused(tmp_path):
    source = add_model(tmp_path / "source", "echo")
    with pytest.raises(LaunchError, match=r"no model named nobody; it has echo"):
        render(source, tmp_path / "a", {"nobody": {}})
    with pytest.raises(LaunchError, match="no model in"):
        render(tmp_path / "nowhere", tmp_path / "b", {})
    (source / "echo" / "config.pbtxt").write_text("backend: [")
    with pytest.raises(LaunchError, match=r"echo/config\.pbtxt: 1:\d+"):
        render(source, tmp_path / "c", {})


def test_models_beside_are_named_and_left_where_they_are(tmp_path):
    one, two = add_model(tmp_path / "one", "a"), add_model(tmp_path / "two", "b")
    assert beside([one, two], ["echo"]) == ["a", "b"]
    assert beside([], ["echo"]) == []


def test_a_name_that_comes_twice_a_model_without_a_config_and_an_empty_place_are_refused(tmp_path):
    one, two = add_model(tmp_path / "one", "a"), add_model(tmp_path / "two", "a")
    with pytest.raises(LaunchError, match=r"the model a of .*two is also in .*one"):
        beside([one, two], [])
    with pytest.raises(LaunchError, match=r"the model a of .*one is also in the repository that is served beside it"):
        beside([one], ["a"])
    with pytest.raises(LaunchError, match="no model in .*nowhere"):
        beside([tmp_path / "nowhere"], [])
    (one / "bare" / "1").mkdir(parents=True)
    with pytest.raises(LaunchError, match=r"one/bare has no config\.pbtxt"):
        beside([one], [])
