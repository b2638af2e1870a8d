"""Killed, raced or failed: a directory is whole or absent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from transformers import LlamaConfig

from backend.checkpoint.default_model import ensure
from backend.checkpoint.directory import check_directory
from backend.checkpoint.errors import CheckpointError
from backend.checkpoint.gguf_convert import convert
from backend.checkpoint.publish import exclusive, publish
from backend.checkpoint.source import FILE, read_source
from tests.checkpoint.gguf_samples import random_model, write_model
from tests.checkpoint.test_tiny_models import SIZES

REPOSITORY = Path(__file__).resolve().parents[2]
CONVERT = """
import sys, time
from pathlib import Path
from backend.checkpoint import gguf_tensors
from backend.checkpoint.gguf_convert import convert
values, pause = gguf_tensors.Output.values, float(sys.argv[3])
gguf_tensors.Output.values = lambda output: (time.sleep(pause), values(output))[1]
convert(Path(sys.argv[1]), Path(sys.argv[2]), progress=False)
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    model = random_model(LlamaConfig(**SIZES))
    return write_model(tmp_path_factory.mktemp("gguf") / "tiny.gguf", model, "llama")


def start(tiny, out, pause):
    return subprocess.Popen([sys.executable, "-c", CONVERT, tiny, out, str(pause)], cwd=REPOSITORY)


def names(directory):
    return sorted(path.name for path in directory.iterdir() if not path.name.endswith(".lock"))


def wait_for_weights(parent, seconds=120):
    end = time.monotonic() + seconds
    while not list(parent.glob(".out.partial-*/model.safetensors")):
        assert time.monotonic() < end, "the conversion did not start to write"
        time.sleep(0.02)


def test_a_killed_conversion_leaves_nothing_that_looks_ready_and_the_next_one_cleans_up(tiny, tmp_path):
    out = tmp_path / "out"
    process = start(tiny, out, pause=60)
    try:
        wait_for_weights(tmp_path)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not out.exists()
    assert len(names(tmp_path)) == 1  # the abandoned work
    convert(tiny, out, progress=False)
    check_directory(out)
    assert names(tmp_path) == ["out"]


@pytest.mark.nightly  # 17 s; one after the other, and a killed one, run every day
def test_two_processes_converting_at_once_both_succeed(tiny, tmp_path):
    out = tmp_path / "out"
    both = [start(tiny, out, pause=0.02) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    check_directory(out)
    assert names(tmp_path) == ["out"]


def test_a_failed_write_keeps_the_older_directory(tmp_path):
    target = tmp_path / "out"
    with exclusive(target):
        publish(target, lambda work: (work / "version").write_text("1") and None)
        with pytest.raises(RuntimeError, match="no"):
            publish(target, failing)
        assert (target / "version").read_text() == "1"
        publish(target, lambda work: (work / "version").write_text("2") and None)
    assert (target / "version").read_text() == "2"
    assert names(tmp_path) == ["out"]


def failing(work):
    (work / "version").write_text("half")
    raise RuntimeError("no")


def test_a_stale_directory_is_made_again_and_a_current_one_is_kept(tiny, tmp_path):
    out = convert(tiny, tmp_path / "out", progress=False)
    made = (out / FILE).stat().st_mtime_ns
    convert(tiny, out, progress=False)
    assert (out / FILE).stat().st_mtime_ns == made
    other = write_model(tmp_path / "other.gguf", random_model(LlamaConfig(**SIZES), seed=1), "llama")
    convert(other, out, progress=False)
    assert read_source(out).name == "other.gguf"


def test_a_directory_of_someone_else_is_not_replaced(tiny, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="left as it is"):
        convert(tiny, tmp_path, progress=False)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_gguf_file_is_converted_once_and_again_after_it_changed(tiny, tmp_path):
    first = ensure(str(tiny), tmp_path, progress=False)
    assert ensure(str(tiny), tmp_path, progress=False) == first
    stat = tiny.stat()
    os.utime(tiny, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert ensure(str(tiny), tmp_path, progress=False) != first
