"""Run one profile of loadtests/ against a server on this machine, with no web page, for a bounded time.

Exit code: 0, 1 when a threshold is missed, 2 when it could not be run.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from loadtests.profiles import PROFILES  # noqa: E402
from scripts.command_line import exit_status, within  # noqa: E402
from scripts.generate_stream import Client, ServerError  # noqa: E402

LOCUSTFILE = ROOT / "loadtests" / "locustfile.py"
DOORS = {"grpc": "GrpcClient", "http": "HttpClient", "openai": "OpenaiClient"}
MOST_MINUTES = 120.0
FINISH_SECONDS = 20
"""How long requests under way at the end may take; then they are cut off and not counted."""
OVERHEAD_SECONDS = 60
UNUSABLE = 2


def main() -> int:
    """Check the address, run, and report a failure in one line."""
    arguments = parse()
    return exit_status(lambda: _load(arguments), (ValueError, ServerError), failed=UNUSABLE)


def _load(arguments: argparse.Namespace) -> int:
    doors = _doors(arguments)
    _check_addresses(arguments, doors)
    _check_server(arguments.url)
    return _run(locust_command(arguments, doors), arguments.minutes * 60 + FINISH_SECONDS + OVERHEAD_SECONDS)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; ends the process with a usage message when it is wrong."""
    parser = argparse.ArgumentParser(prog="scripts/loadtest", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profile", choices=sorted(PROFILES), default="chat", help="(%(default)s)")
    minutes = within(float, 0.0, MOST_MINUTES, above=True)
    parser.add_argument("--minutes", type=minutes, default=2.0, help=f"(%(default)s), at most {MOST_MINUTES:g}")
    users = within(int, 1, 1000)
    parser.add_argument("--users", type=users, default=0, metavar="N", help="clients at a time (the profile's own)")
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of the server's gRPC service (%(default)s)")
    parser.add_argument("--http-url", default="http://127.0.0.1:8000", help="of its HTTP service (%(default)s)")
    parser.add_argument("--gateway-url", default="", help="of OpenAI's interface, without /v1; loads it, too")
    parser.add_argument("--doors", default="", help="grpc, http, openai, comma-separated (all with an address)")
    parser.add_argument("--thresholds", type=Path, metavar="FILE", help="in place of loadtests/thresholds.toml")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write Locust's report as HTML")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write Locust's table as JSON")
    parser.add_argument("--seed", type=int, default=0, help="the same seed draws the same requests (%(default)s)")
    return parser.parse_args(arguments)


def locust_command(arguments: argparse.Namespace, doors: list[str]) -> list[str]:
    """Locust's command line: one class of users for each door, evenly many of each."""
    users = arguments.users or PROFILES[arguments.profile].users
    optional = {
        "--thresholds": arguments.thresholds,
        "--html": arguments.report,
        "--json-file": arguments.json and arguments.json.with_suffix(""),  # Locust appends the suffix
        "--gateway-url": arguments.gateway_url,
    }
    return [
        sys.executable, "-m", "locust", "-f", str(LOCUSTFILE),
        "--headless", "--only-summary", "--loglevel", "WARNING",
        "--load", arguments.profile, "--load-seed", str(arguments.seed),
        "--grpc-url", arguments.url, "--http-url", arguments.http_url,
        "--users", str(users), "--spawn-rate", str(users),
        "--run-time", f"{max(1, round(arguments.minutes * 60))}s", "--stop-timeout", str(FINISH_SECONDS),
        *(word for flag, value in optional.items() if value for word in (flag, str(value))),
        *(DOORS[door] for door in doors),
    ]  # fmt: skip


def _doors(arguments: argparse.Namespace) -> list[str]:
    addressed = ["grpc", "http"] + ["openai"] * bool(arguments.gateway_url)
    doors = arguments.doors.split(",") if arguments.doors else addressed
    if unknown := sorted(set(doors) - set(DOORS)):
        raise ValueError(f"--doors: {unknown[0]!r} is none of {', '.join(DOORS)}")
    if "openai" in doors and not arguments.gateway_url:
        raise ValueError("--doors openai needs --gateway-url")
    return list(dict.fromkeys(doors))


def _check_addresses(arguments: argparse.Namespace, doors: list[str]) -> None:
    """A load test is an attack on whoever did not ask for it."""
    places = {"grpc": f"//{arguments.url}", "http": arguments.http_url, "openai": arguments.gateway_url}
    for door in doors:
        host = urlsplit(places[door]).hostname
        if not host or not is_of_this_machine(host):
            raise ValueError(f"{places[door].lstrip('/')} is not an address of this machine; run the load test there")


def is_of_this_machine(host: str) -> bool:
    """Whether every address of `host` is one that a socket here can be bound to."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(_binds(family, address) for family, _, _, _, address in found)


def _binds(family: int, address: tuple[object, ...]) -> bool:
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind(address)
        return True
    return False


def _check_server(url: str) -> None:
    client = Client(url)
    try:
        client.connect()
    finally:
        client.close()


def _run(command: list[str], seconds: float) -> int:
    with subprocess.Popen(command, cwd=ROOT) as process:
        # A Ctrl-C in the terminal reaches Locust as well, which ends in order and tells what it has.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise ValueError(f"Locust did not end within {seconds:.0f} s") from error


if __name__ == "__main__":
    sys.exit(main())
