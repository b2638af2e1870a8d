"""The README's commands work as they stand there."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_fixture import RunningServer

pytestmark = pytest.mark.server
README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


@pytest.fixture(scope="module")
def server(smollm2_dir: Path) -> Iterator[RunningServer]:
    yield from RunningServer.fixture(smollm2_dir)


def on(server: RunningServer, text: str) -> str:
    return text.replace("localhost:8000", f"127.0.0.1:{server.http_port}").replace("localhost:8001", server.grpc_url)


def test_the_curl_lines(server: RunningServer) -> None:
    lines = [line for line in re.findall(r"^curl .*?(?:\\\n.*?)?$", README, re.MULTILINE) if ":8000" in line]
    assert len(lines) == 3
    whole, streamed, vllm = (
        subprocess.run(on(server, line), shell=True, capture_output=True, text=True) for line in lines
    )
    assert '"text_output":" Paris.' in whole.stdout
    assert streamed.stdout.startswith("data: {")
    pieces = [json.loads(line.removeprefix("data: ")) for line in streamed.stdout.split("\n\n") if line]
    # How many tokens come in the first piece depends on who is faster, the engine or the server.
    assert "".join(piece["text_output"] for piece in pieces).startswith(" Paris.")
    assert len(pieces) > 1
    assert '"text_output":"Hello' in vllm.stdout


def test_the_python_client(server: RunningServer) -> None:
    (program,) = [each for each in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "tritonclient" in each]
    done = subprocess.run([sys.executable, "-c", on(server, program)], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith(" Paris."), done.stderr


def test_ask(server: RunningServer) -> None:
    (question,) = re.findall(r'^scripts/ask "(.*)"$', README, re.MULTILINE)
    ask = Path(__file__).resolve().parents[2] / "scripts" / "ask.py"
    done = subprocess.run(
        [sys.executable, str(ask), question, "--url", server.grpc_url], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "red" in done.stdout.lower()
    assert re.search(r"\d+ tokens, [\d.]+ tokens/s, TTFT \d+ ms", done.stderr)
