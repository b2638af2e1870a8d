"""Serve OpenAI's HTTP interface before a running Triton Server, until Ctrl-C or SIGTERM.

Prints one line to standard output once it listens; everything else goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path

# Read when grpc is imported. By default it tells every connection that ends on standard error, which is for what is
# wrong; whoever sets the variable still gets what it asks for.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import uvicorn

from backend.gateway.app import create_app
from backend.gateway.settings import KEY_VARIABLE, Settings

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def main() -> int:
    """Listen, serve, and report a failure in one line."""
    arguments = _parse()
    settings = _settings(arguments)
    try:
        listener = _listen(arguments.host, arguments.port)
    except OSError as error:
        print(f"error: cannot listen on {arguments.host}:{arguments.port}: {error.strerror}", file=sys.stderr)
        return 1
    if arguments.host not in LOOPBACK and not settings.api_key:
        print(f"warning: whoever reaches {arguments.host} can use it; {KEY_VARIABLE} asks for a key", file=sys.stderr)
    config = uvicorn.Config(
        create_app(settings),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=arguments.grace_seconds,
    )
    host, port = listener.getsockname()[:2]
    print(f"gateway: http://{f'[{host}]' if ':' in host else host}:{port}/v1 before {settings.url}", flush=True)
    uvicorn.Server(config).run(sockets=[listener])
    return 0


def _parse() -> argparse.Namespace:
    known = Settings()
    parser = argparse.ArgumentParser(
        prog="scripts/gateway",
        description="OpenAI's HTTP interface before a running Triton Server.",
        epilog=f"With the environment variable {KEY_VARIABLE} set, requests need it as their bearer key.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=9000, help="0 = any (%(default)s)")
    parser.add_argument("--url", default=known.url, help="host:port of the server's gRPC service (%(default)s)")
    parser.add_argument("--model-name", default="", help="what clients call the model (its directory's name)")
    parser.add_argument(
        "--tokenizer", type=Path, metavar="DIRECTORY", help="chat template and tokenizer (where the server has them)"
    )

    def number(flag: str, default: int, meaning: str) -> None:
        parser.add_argument(flag, type=_count, default=default, metavar="N", help=f"{meaning} (%(default)s)")

    number("--max-body-bytes", known.max_body_bytes, "a larger request is refused")
    number("--max-requests", known.max_requests, "requests under way at a time; more are refused")
    number("--request-seconds", int(known.request_seconds), "an answer that takes longer is an error")
    number("--default-max-tokens", known.default_max_tokens, "tokens of a chat answer that names no limit")
    number("--grace-seconds", 25, "time for open requests to finish when the gateway is told to end")
    return parser.parse_args()


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def _settings(arguments: argparse.Namespace) -> Settings:
    return Settings(
        url=arguments.url,
        model_name=arguments.model_name,
        tokenizer_dir=arguments.tokenizer,
        max_body_bytes=arguments.max_body_bytes,
        max_requests=arguments.max_requests,
        request_seconds=arguments.request_seconds,
        default_max_tokens=arguments.default_max_tokens,
        api_key=os.environ.get(KEY_VARIABLE, ""),
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, port), family=family)


if __name__ == "__main__":
    sys.exit(main())
