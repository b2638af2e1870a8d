"""What an operator may ask of the model's configuration and does not get: one line, and nothing left running."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server_fixture import command_line

pytestmark = pytest.mark.server
REPOSITORY = Path(__file__).resolve().parents[2] / "model_repository"


def test_two_instances_of_the_engine_are_refused_as_each_would_load_the_model_again(
    tmp_path: Path, smollm2_dir: Path
) -> None:
    repository = shutil.copytree(REPOSITORY, tmp_path / "models", ignore=shutil.ignore_patterns("__pycache__"))
    config = repository / "inflight_batcher" / "config.pbtxt"
    once = "instance_group [ { count: 1 kind: KIND_CPU } ]"
    assert once in config.read_text()
    config.write_text(config.read_text().replace(once, once.replace("1", "2")))
    line = command_line(smollm2_dir, model_repository=repository)
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(
        "error: inflight_batcher: instance_group: 2 instances, exactly 1 is allowed"
    )
