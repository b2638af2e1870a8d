"""Ties profiles, doors and thresholds to Locust; scripts/loadtest runs it, and so does `locust -f` with its web page.

A user is one client with one connection, on a greenlet of its own; gRPC is told to yield to the others.
"""

from __future__ import annotations

import itertools
import sys
import time
from argparse import Namespace
from pathlib import Path
from random import Random
from typing import Any

import grpc.experimental.gevent as grpc_gevent
from locust import User, events, task
from locust.stats import StatsEntry

grpc_gevent.init_gevent()
# Locust puts only this file's own directory on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from loadtests import asks, measure, thresholds  # noqa: E402
from loadtests.doors.base import Door  # noqa: E402
from loadtests.doors.grpc_door import GrpcDoor  # noqa: E402
from loadtests.doors.http_door import HttpDoor  # noqa: E402
from loadtests.doors.openai_door import OpenaiDoor  # noqa: E402
from loadtests.profiles import PROFILES  # noqa: E402

THRESHOLDS = Path(__file__).with_name("thresholds.toml")
EXIT_MISSED, EXIT_UNUSABLE = 1, 2
PERCENTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_numbers = itertools.count()


class Client(User):
    """Sends one request after the other, drawn from the profile."""

    abstract = True

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        options = environment.parsed_options
        self.profile = PROFILES[options.load]
        self.number = next(_numbers)
        self.random = Random(f"{options.load_seed}/{self.number}")
        self.door = self.open(options)

    def open(self, options: Namespace) -> Door:
        """This user's way into the server."""
        raise NotImplementedError

    def wait_time(self) -> float:
        """Seconds until the next request."""
        return self.profile.wait(self.random, time.time())

    @task
    def ask(self) -> None:
        """One request."""
        kind = self.profile.draw(self.random, self.number)
        self.number += 1
        measure.run(self.door, asks.draw(kind, self.random), self.environment.events.request.fire)


class GrpcClient(Client):
    """gRPC streaming."""

    def open(self, options: Namespace) -> Door:
        """See Client."""
        return GrpcDoor(options.grpc_url)


class HttpClient(Client):
    """/generate_stream."""

    def open(self, options: Namespace) -> Door:
        """See Client."""
        return HttpDoor(options.http_url)


class OpenaiClient(Client):
    """The gateway."""

    def open(self, options: Namespace) -> Door:
        """See Client."""
        return OpenaiDoor(options.gateway_url)


@events.init_command_line_parser.add_listener
def _add_options(parser: Any) -> None:
    parser.add_argument("--load", choices=sorted(PROFILES), default="chat", help="profile of the load")
    parser.add_argument("--load-seed", type=int, default=0, help="the same seed draws the same requests")
    parser.add_argument("--grpc-url", default="127.0.0.1:8001", help="host:port")
    parser.add_argument("--http-url", default="http://127.0.0.1:8000", help="http://host:port")
    parser.add_argument("--gateway-url", default="http://127.0.0.1:9000", help="http://host:port, without /v1")
    parser.add_argument("--thresholds", type=Path, default=THRESHOLDS, help="what is good enough")


@events.quitting.add_listener
def _judge(environment: Any, **_: Any) -> None:
    """Print a verdict for each threshold and set the exit code."""
    options = environment.parsed_options
    try:
        verdicts = thresholds.judge(thresholds.load(options.thresholds, options.load), _entries(environment))
    except thresholds.ThresholdError as error:
        print(f"error: {error}", file=sys.stderr)
        environment.process_exit_code = EXIT_UNUSABLE
        return
    print("\n".join(["thresholds", *(f"  {verdict}" for verdict in verdicts)]), flush=True)
    environment.process_exit_code = 0 if all(verdict.passed for verdict in verdicts) else EXIT_MISSED


def _entries(environment: Any) -> list[thresholds.Entry]:
    return [_entry(stats) for stats in environment.stats.entries.values()]


def _entry(stats: StatsEntry) -> thresholds.Entry:
    def value(statistic: str) -> float:
        if statistic in PERCENTILES:
            return float(stats.get_response_time_percentile(PERCENTILES[statistic]))
        plain = {"count": stats.num_requests, "average": stats.avg_response_time, "fail_ratio": stats.fail_ratio}
        return float(plain[statistic])

    return thresholds.Entry(kind=stats.method, name=stats.name, value=value)
