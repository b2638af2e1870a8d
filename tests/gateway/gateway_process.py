"""scripts/gateway.py as a process of its own, on a free port."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

GATEWAY = Path(__file__).resolve().parents[2] / "scripts" / "gateway.py"


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> dict[str, Any]:
        """The error in OpenAI's form, complete."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error

    @property
    def events(self) -> list[Any]:
        """The JSON of a stream's events, which is ended as it must be."""
        lines = [line.removeprefix("data: ") for line in self.text.split("\n\n") if line]
        assert lines.pop() == "[DONE]"
        return [json.loads(line) for line in lines]


class Gateway(NamedTuple):
    process: subprocess.Popen[str]
    url: str

    def get(self, path: str, **headers: str) -> Reply:
        return self._send(urllib.request.Request(self.url + path, headers=headers))

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        return self._send(urllib.request.Request(self.url + path, data, headers))

    def _send(self, request: urllib.request.Request) -> Reply:
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return Reply(response.status, response.headers, response.read().decode())
        except urllib.error.HTTPError as error:
            return Reply(error.code, error.headers, error.read().decode())


@contextlib.contextmanager
def running_gateway(url: str, *options: str, key: str = "") -> Iterator[Gateway]:
    """Before the server at ``url``; what it wrote to standard error must be nothing."""
    line = [sys.executable, str(GATEWAY), "--port", "0", "--url", url, *options]
    environment = {**os.environ, "GATEWAY_API_KEY": key}
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        said = process.stdout.readline()
        assert said.startswith("gateway: http://"), said + process.stderr.read()
        yield Gateway(process, said.split()[1].removesuffix("/v1"))
    finally:
        process.terminate()
        _, log = process.communicate(timeout=60)
    assert not log, log
    assert process.returncode in (0, -15)
