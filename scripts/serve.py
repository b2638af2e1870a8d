"""Serve a language model with Triton Server until Ctrl-C; start it again when it dies.

Prints to standard output once, when the server is first ready; everything else goes to standard error. Returns 0 after
an end that was asked for, and otherwise says why in one line that begins with `error:`.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path

from launcher import hints, options
from launcher.errors import LaunchError
from launcher.ports import Ports
from launcher.server import Server
from launcher.stop_signal import StopSignal
from launcher.supervisor import Supervisor


def main() -> int:
    """Parse the command line, serve, and report a failure."""
    arguments = options.parse()
    try:
        return _serve(arguments)
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # before the server's own handling of signals: while the model is prepared
        return 130


def _serve(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    chosen = options.server_options(arguments, _checkpoint(arguments))
    stop = StopSignal()

    def make(ports: Ports | None) -> Server:
        return Server(dataclasses.replace(chosen, ports=ports or chosen.ports))

    def announce(server: Server) -> None:
        print(hints.ready_message(server, time.monotonic() - began), flush=True)

    print(f"starting Triton Server with the models of {chosen.source}", file=sys.stderr)
    Supervisor(make, stop, announce, restarts=arguments.restart).run()
    return 0


def _checkpoint(arguments: argparse.Namespace) -> Path | None:
    """The model's directory, fetched first when it is a known name; None when no model wants one."""
    if arguments.model is None and arguments.model_repository is not None:
        return None
    # Imported here: a repository of its own needs nothing of this project's engine.
    from backend.checkpoint.default_model import ensure

    try:
        return ensure(arguments.model or options.DEFAULT_MODEL, options.model_cache()).resolve()
    except (ValueError, RuntimeError, OSError) as error:
        raise LaunchError(f"--model: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
