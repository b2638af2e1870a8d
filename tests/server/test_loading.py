"""What an operator may ask of the model's configuration and does not get: one line, and nothing left running."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server_fixture import command_line

pytestmark = pytest.mark.server
REPOSITORY = Path(__file__).resolve().parents[2] / "model_repository"


ONE_INSTANCE = "instance_group [ { count: 1 kind: KIND_CPU } ]"


def refusal(repository: Path, model: Path, changed: str, old: str, new: str) -> str:
    """The last line of a start from a copy of the repository in which one model's config.pbtxt is changed."""
    shutil.copytree(REPOSITORY, repository, ignore=shutil.ignore_patterns("__pycache__"))
    config = repository / changed / "config.pbtxt"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))
    line = command_line(model, model_repository=repository)
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    return done.stderr.splitlines()[-1]


@pytest.mark.nightly
def test_two_instances_of_the_engine_are_refused_as_each_would_load_the_model_again(
    tmp_path: Path, smollm2_dir: Path
) -> None:
    line = refusal(tmp_path / "models", smollm2_dir, "inflight_batcher", ONE_INSTANCE, ONE_INSTANCE.replace("1", "2"))
    assert line.startswith("error: inflight_batcher: instance_group: 2 instances, exactly 1 is allowed")


def test_a_queue_of_the_detokenizer_is_refused_as_streams_would_hang_on_it(tmp_path: Path, smollm2_dir: Path) -> None:
    line = refusal(
        tmp_path / "models", smollm2_dir, "postprocessing", ONE_INSTANCE, f"{ONE_INSTANCE}\ndynamic_batching {{ }}"
    )
    why = "not allowed here, as chunks would overtake each other and streams hang"
    assert line == f"error: postprocessing: dynamic_batching: {why}"
