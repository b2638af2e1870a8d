"""scripts/ask.py against a stand-in for the ensemble, behind a real Triton Server."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.server_fixture import SERVE, RunningServer

from .tiny_models import ECHO_CONFIG, STREAM_CONFIG, STREAMS, add_model

pytestmark = pytest.mark.server
ASK = SERVE.with_name("ask.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("ask")
    (root / "tokenizer").mkdir()
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    (root / "tokenizer" / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    where = f'parameters {{ key: "tokenizer_dir" value {{ string_value: "{root / "tokenizer"}" }} }}'
    add_model(root / "models", "preprocessing", config=ECHO_CONFIG + where)
    add_model(root / "models", "ensemble", STREAMS, STREAM_CONFIG)
    yield from RunningServer.fixture(model_repository=root / "models")


def _ask(*arguments):
    line = [sys.executable, str(ASK), *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def test_the_answer_is_streamed_with_the_chat_template_and_followed_by_its_speed(server):
    done = _ask("hé", "--system", "be brief", "--seed", "7", "--url", server.grpc_url)
    assert (done.returncode, done.stdout) == (0, "<[system]be brief[user]hé> end\n")
    assert re.fullmatch(r"4 tokens, [\d.]+ tokens/s, TTFT \d+ ms\n", done.stderr)


def test_raw_sends_the_prompt_as_it_is(server):
    assert _ask("once", "--raw", "--url", server.grpc_url).stdout == "<once> end\n"


def test_what_the_server_refuses_is_told_in_one_line(server):
    done = _ask("x", "--raw", "--priority", "1", "--url", server.grpc_url)  # this stand-in takes no priority
    assert done.returncode == 1
    assert re.fullmatch(r"error: .*priority.*\n", done.stderr)


def test_without_a_server_the_answer_says_how_to_start_one():
    done = _ask("x", "--url", "127.0.0.1:9")
    assert done.returncode == 1
    assert re.fullmatch(r"error: no server answers at 127\.0\.0\.1:9; start one with scripts/serve.*\n", done.stderr)
