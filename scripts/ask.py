"""Ask the running server one question and show the answer as it is made."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from command_line import exit_status
from generate_stream import Client, Piece, ServerError

from backend.text import chat_template


def main() -> int:
    """Ask, and report a failure in one line."""
    arguments = _parse()
    return exit_status(lambda: _ask(arguments), (ServerError, ValueError, OSError))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/ask", description="Ask the running server.")
    parser.add_argument("prompt", help="the question; - reads it from standard input")
    parser.add_argument("--raw", action="store_true", help="send the prompt as it is, without a chat template")
    parser.add_argument("--system", help="system message of the chat template")
    parser.add_argument("--max-tokens", type=int, default=256, metavar="N", help="(%(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 = most likely (%(default)s)")
    parser.add_argument("--top-k", type=int, metavar="K")
    parser.add_argument("--top-p", type=float, metavar="P")
    parser.add_argument("--seed", type=int, metavar="S")
    parser.add_argument("--priority", type=int, metavar="LEVEL", help="1 is the most urgent")
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of the server's gRPC service (%(default)s)")
    return parser.parse_args()


def _ask(arguments: argparse.Namespace) -> None:
    client = Client(arguments.url)
    try:
        client.connect()
        inputs = _inputs(arguments, _prompt(arguments, client))
        print(_show(client.generate(inputs)), file=sys.stderr)
    finally:
        client.close()


def _prompt(arguments: argparse.Namespace, client: Client) -> str:
    text = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    if arguments.raw:
        return str(text)
    template = _template(client)
    if template is None:
        print("note: the model has no chat template, so the prompt is sent as it is", file=sys.stderr)
        return str(text)
    system = [{"role": "system", "content": arguments.system}] if arguments.system else []
    return template.render([*system, {"role": "user", "content": text}])


def _template(client: Client) -> chat_template.ChatTemplate | None:
    place = Path(client.parameter("preprocessing", "tokenizer_dir"))
    if not place.exists():
        raise ServerError(f"the server's tokenizer ({place}) is not on this machine; use --raw")
    return chat_template.find(place)


def _inputs(arguments: argparse.Namespace, prompt: str) -> dict[str, Any]:
    """The ensemble's inputs; what was not asked for is left to the server."""
    given = {name: getattr(arguments, name) for name in ("top_k", "top_p", "seed", "priority")}
    return {
        "text_input": prompt.encode(),
        "max_tokens": arguments.max_tokens,
        "temperature": arguments.temperature,
        "stream": True,
        "exclude_input_in_output": True,
        **{name: value for name, value in given.items() if value is not None},
    }


def _show(pieces: Iterable[Piece]) -> str:
    """Write the text as it comes; returns a line about its speed."""
    began = time.monotonic()
    first, early, tokens = None, 0, 0
    for piece in _written(pieces):
        tokens += piece.tokens
        if first is None and piece.tokens:
            first, early = time.monotonic(), tokens
    if first is None:
        return "no tokens"
    # The first response's tokens took the prompt's time, so they are not part of the generation speed.
    seconds = time.monotonic() - first
    speed = f"{(tokens - early) / seconds:.1f} tokens/s, " if tokens > early and seconds > 0 else ""
    return f"{tokens} tokens, {speed}TTFT {(first - began) * 1000:.0f} ms"


def _written(pieces: Iterable[Piece]) -> Iterator[Piece]:
    try:
        for piece in pieces:
            print(piece.text, end="", flush=True)
            yield piece
    finally:
        print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
