"""The model repository that a server loads: a private copy of the source with parameters written into it.

The source is never edited, so several servers with different settings can run from one checkout.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from .errors import LaunchError

CONFIG = "config.pbtxt"

Parameters = Mapping[str, Mapping[str, str]]
"""Model name -> parameter name -> value."""


def with_parameter(parameters: Parameters, model: str, key: str, value: str) -> Parameters:
    """The same with one parameter more, unless the model has it already."""
    return {**parameters, model: {key: value, **parameters[model]}}


def models_in(source: Path) -> list[str]:
    """Names of the models in the repository `source`, sorted."""
    return sorted(config.parent.name for config in source.glob(f"*/{CONFIG}"))


def beside(sources: Sequence[Path], taken: Sequence[str]) -> list[str]:
    """Names of the models in further repositories, which the server reads where they lie.

    They may be of any size and on a read-only disk, so nothing is copied or written into them. Raises LaunchError when
    one holds no model, when a model there has no config.pbtxt (the server is told not to guess one), or when a name
    comes twice: Triton Server would load neither of the two.
    """
    homes: dict[str, Path | None] = dict.fromkeys(taken)
    found: list[str] = []
    for source in sources:
        models = models_in(source)
        if not models:
            raise LaunchError(f"--also-serve: no model in {source} (looked for */{CONFIG})")
        if bare := _without_config(source):
            raise LaunchError(f"--also-serve: {source / bare[0]} has no {CONFIG}")
        for model in models:
            if model in homes:
                other = homes[model] or "the repository that is served beside it"
                raise LaunchError(f"--also-serve: the model {model} of {source} is also in {other}")
            homes[model] = source
        found += models
    return found


def _without_config(source: Path) -> list[str]:
    """Directories that hold a version of a model but no configuration."""
    versions = (version for version in source.glob("*/*") if version.is_dir() and version.name.isdigit())
    return sorted({version.parent.name for version in versions if not (version.parent / CONFIG).exists()})


def render(source: Path, target: Path, parameters: Parameters, max_queue_size: int = 0) -> list[str]:
    """Copy every model of `source` into `target` (created) and set its parameters; returns the models' names.

    max_queue_size bounds each level of every queue that has a bound in its config.pbtxt; 0 leaves them as they are.

    A parameter that the source's config.pbtxt already holds is replaced, others are kept.

    Raises LaunchError when `source` holds no model, when `parameters` names a model it lacks, or when a
    config.pbtxt cannot be parsed.
    """
    models = models_in(source)
    if not models:
        raise LaunchError(f"no model in {source} (looked for */{CONFIG})")
    if unknown := sorted(set(parameters) - set(models)):
        raise LaunchError(f"{source} has no model named {', '.join(unknown)}; it has {', '.join(models)}")
    for model in models:
        _render_model(source / model, target / model, parameters.get(model, {}), max_queue_size)
    return models


def _render_model(source: Path, target: Path, parameters: Mapping[str, str], max_queue_size: int) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    # Triton Server wants a version directory of an ensemble too, and git keeps no empty directory.
    if not any(child.name.isdigit() for child in target.iterdir()):
        (target / "1").mkdir()
    config = _parse(source / CONFIG)
    for key, value in parameters.items():
        config.parameters[key].string_value = value
    if max_queue_size and config.dynamic_batching.default_queue_policy.max_queue_size:
        config.dynamic_batching.default_queue_policy.max_queue_size = max_queue_size
    (target / CONFIG).write_text(text_format.MessageToString(config, as_utf8=True), encoding="utf-8")


def _parse(path: Path) -> model_config_pb2.ModelConfig:
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise LaunchError(f"{path}: {error}") from error
