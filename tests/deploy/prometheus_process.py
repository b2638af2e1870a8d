"""Prometheus with the deployment's own configuration, before a server of a test."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.server_fixture import RunningServer

from .compose_file import ROOT

START_SECONDS = 30.0


class Prometheus(NamedTuple):
    url: str

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The samples of an instant query."""
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}") as reply:
            return list(json.load(reply)["data"]["result"])


@contextlib.contextmanager
def running_prometheus(server: RunningServer, directory: Path) -> Iterator[Prometheus]:
    """It scrapes ``server`` each second in place of the compose network's ``triton``; ends with the block."""
    shutil.copytree(ROOT / "deploy/prometheus", directory / "configuration")
    configuration = directory / "configuration/prometheus.yml"
    text = configuration.read_text().replace("triton:8002", f"{server.host}:{server.metrics_port}")
    configuration.write_text(text.replace("scrape_interval: 5s", "scrape_interval: 1s"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    line = ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={directory / 'data'}"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([*line, f"--web.listen-address={address}"], stdout=log, stderr=log)
        try:
            _wait_ready(process, f"http://{address}/-/ready", directory / "log")
            yield Prometheus(f"http://{address}")
        finally:
            process.terminate()
            process.wait(30)


def _wait_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.1)
    raise AssertionError(log.read_text())
