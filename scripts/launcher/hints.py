"""What to paste into a second terminal once the server is ready."""

from __future__ import annotations

import json
import re

from .server import Server

ENTRY = "ensemble"
READY_LINE = re.compile(
    r"^ready in .*http://(?P<host>[\d.]+):(?P<http>\d+)  gRPC [\d.]+:(?P<grpc>\d+)  metrics http://[\d.]+:(?P<metrics>\d+)",
    re.MULTILINE,
)
"""The first line of `ready_message`, for programs that start a launcher."""
EXAMPLE = {"text_input": "The capital of France is", "max_tokens": 16}


def ready_message(server: Server, seconds: float) -> str:
    """Several lines: where the server listens, and commands that work as they stand."""
    host, ports = server.local_host, server.ports
    lines = [
        f"ready in {seconds:.1f} s: HTTP http://{host}:{ports.http}  gRPC {host}:{ports.grpc}  "
        f"metrics http://{host}:{ports.metrics}/metrics",
        f"models: {', '.join(server.models)}",
    ]
    if ENTRY in server.models:
        lines += _examples(f"http://{host}:{ports.http}/v2/models/{ENTRY}/generate", f"{host}:{ports.grpc}")
    return "\n".join([*lines, "Ctrl-C ends it."])


def _examples(generate: str, grpc: str) -> list[str]:
    body = json.dumps(EXAMPLE)
    python = (
        "import json, urllib.request as r; "
        f'print(json.load(r.urlopen("{generate}", json.dumps({body}).encode()))["text_output"])'
    )
    return [
        f"  curl -s {generate} -d '{body}'",
        f"  python3 -c '{python}'",
        f"  scripts/ask --url {grpc} 'Why is the sky blue?'",
    ]
