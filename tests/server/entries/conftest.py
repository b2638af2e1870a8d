"""One server for all tests of the entries."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reference import Reference
from tests.server.entries.client import PATIENCE, Client, Types
from tests.server_fixture import RunningServer
from tests.step_trace import trace_file_fixture

LONGEST = 9


trace_file = trace_file_fixture("package")


@pytest.fixture(scope="package")
def server(smollm2_dir: Path, trace_file: Path) -> Iterator[RunningServer]:
    # A response for each token, as the tests count them; others have the pace of users.
    parameter = {"step_trace_file": trace_file, "cancel_poll_ms": 5, "stream_pace_ms": 0}
    yield from RunningServer.fixture(
        smollm2_dir, max_batch_size=40, weight_precision="float32", parameter=parameter, model_control=True
    )


class Expected(Reference):
    """transformers' own continuations, computed once per prompt: a shorter one is the beginning of a longer one."""

    def greedy(self, text: str, max_tokens: int) -> list[int]:
        """As Reference's, for at most LONGEST tokens."""
        assert max_tokens <= LONGEST
        return super().greedy(text, LONGEST)[:max_tokens]


@pytest.fixture(scope="package")
def reference(smollm2_dir: Path) -> Reference:
    return Expected(smollm2_dir)


@pytest.fixture(scope="package")
def types(server: RunningServer) -> Types:
    """Input name -> type, as the model's metadata says."""
    known: dict[str, dict[str, str]] = {}

    def of(model: str) -> dict[str, str]:
        if model not in known:
            with urllib.request.urlopen(f"{server.http_url}/v2/models/{model}", timeout=PATIENCE) as response:
                known[model] = {each["name"]: each["datatype"] for each in json.load(response)["inputs"]}
        return known[model]

    return of


@pytest.fixture
def client(server: RunningServer, types: Types) -> Iterator[Client]:
    made = Client(server, types)
    yield made
    made.client.stop_stream(cancel_requests=True)
    made.client.close()
