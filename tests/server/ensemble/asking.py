"""What tests of the ensemble ask, and the server's limits that they know."""

import json
import urllib.error
import urllib.request
from typing import Any

from tests.server_fixture import RunningServer
from tests.triton_client import ask

POOL_TOKENS, MAX_SEQ_LEN = 4096, 2048


def post(server: RunningServer, path: str, body: dict[str, Any]) -> tuple[int, str]:
    request = urllib.request.Request(f"{server.http_url}/v2/models/ensemble/{path}", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def probe(server: RunningServer) -> None:
    """A short greedy request must be answered, and right."""
    answer = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, exclude_input_in_output=True)
    assert (answer.error, answer.text, answer.reason) == ("", " Paris.", "length")
