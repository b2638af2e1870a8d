"""The README's commands for the gateway work as they stand there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.gateway_process import Gateway

pytestmark = pytest.mark.server
README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def on(gateway: Gateway, text: str) -> str:
    return text.replace("http://localhost:9000", gateway.url).replace("localhost:9000", gateway.url)


def test_the_curl_line(gateway: Gateway) -> None:
    lines = re.findall(r"^curl .*?(?:\\\n.*?)?$", README, re.MULTILINE)
    (line,) = [line for line in lines if ":9000" in line]
    done = subprocess.run(on(gateway, line), shell=True, capture_output=True, text=True)
    assert "Paris" in json.loads(done.stdout)["choices"][0]["message"]["content"]


def test_the_python_client(gateway: Gateway) -> None:
    programs = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (program,) = [program for program in programs if "openai" in program]
    done = subprocess.run([sys.executable, "-c", on(gateway, program)], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith(" Paris."), done.stderr
