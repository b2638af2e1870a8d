"""The server as docker-compose.yml starts it, outside a container: its own models beside others, watched and loaded.

The load test's counts are held against what must have come: every answer has exactly the tokens that were asked for,
and the server counts the requests itself.
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtests.profiles import PROFILES
from scripts.launcher import options
from tests.deploy.compose_file import ROOT, services
from tests.deploy.prometheus_process import running_prometheus
from tests.deploy.queries import dashboard_queries, families, rules
from tests.gateway.gateway_process import running_gateway
from tests.metrics_page import Page, at_rest, settled
from tests.server_fixture import RunningServer
from tests.step_trace import steps
from tests.triton_client import ask

pytestmark = [pytest.mark.server, pytest.mark.nightly]
NIGHTLY_PROFILES = [pytest.param(name, marks=pytest.mark.nightly) for name in PROFILES if name != "tiny"]
TOKENS = PROFILES["tiny"].kinds[0].tokens[0]
NONE = {"num_requests": 0}
# Of machines with an NVIDIA GPU alone.
OF_A_GPU = {"nv_gpu_utilization", "nv_gpu_memory_used_bytes"}


@pytest.fixture(scope="module")
def server(smollm2_dir: Path, trace_file: Path) -> Iterator[RunningServer]:
    """The command of the service server-cpu, with what it mounts at its place here and on free ports."""
    service = services()["server-cpu"]
    mounts = {mount.split(":")[1]: ROOT / mount.split(":")[0] for mount in service["volumes"] if mount.startswith(".")}
    chosen = options.parse(service["command"][2:])
    (beside,) = (mounts[str(place)] for place in chosen.also_serve)
    yield from RunningServer.fixture(
        smollm2_dir,
        device=chosen.device,
        max_queue_size=chosen.max_queue_size,
        also_serve=beside,
        parameter={"step_trace_file": trace_file, "metrics_interval_ms": 100},
    )


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return str(reply.read().decode())


def counted(server: RunningServer, family: str, model: str) -> int:
    """The sum of a family's samples for a model."""
    lines = re.findall(rf'^{family}{{.*model="{model}".*}} (\d+)$', get(server.metrics_url), re.MULTILINE)
    assert lines
    return sum(map(int, lines))


def computed(found: list[dict[str, Any]]) -> int:
    """Positions that were computed, or found in the prefix cache, of all requests."""
    ends: dict[int, int] = {}
    for step in found:
        for request, first, count in step["work"]:
            ends[request] = max(ends.get(request, 0), first + count)
    return sum(ends.values())


def word_count(server: RunningServer, text: str) -> Any:
    tensor = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
    url = f"{server.http_url}/v2/models/word_count/infer"
    with urllib.request.urlopen(url, json.dumps({"inputs": [tensor]}).encode(), timeout=60) as reply:
        return json.load(reply)["outputs"][0]["data"]


def finite(sample: dict[str, Any]) -> bool:
    return math.isfinite(float(sample["value"][1]))


def load(server: RunningServer, profile: str, *flags: str, seconds: float = 2.0) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "scripts/loadtest.py"), "--profile", profile, "--minutes", str(seconds / 60)]
    addresses = ["--url", server.grpc_url, "--http-url", server.http_url]
    return subprocess.run([*line, *addresses, *flags], capture_output=True, text=True, timeout=300)


def table(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(line["method"], line["name"]): line for line in json.loads(path.read_text())}


def test_both_repositories_answer_side_by_side(server: RunningServer) -> None:
    assert "word_count" in server.announcement()
    assert word_count(server, "how many words are these") == [5]
    answer = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, exclude_input_in_output=True)
    assert (answer.error, answer.text) == ("", " Paris.")
    assert word_count(server, "still there") == [2]


def test_the_healthcheck_of_a_container_says_whether_the_server_is_ready_whatever_proxy_it_is_given(
    server: RunningServer,
) -> None:
    def healthy(asked: str) -> bool:
        _, _, flag, program = services()["server-cpu"]["healthcheck"]["test"]
        line = [sys.executable, flag, program.replace("127.0.0.1:8000/v2/health/ready", asked)]
        proxy = {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}
        return subprocess.run(line, env={**os.environ, **proxy}, capture_output=True, timeout=60).returncode == 0

    address = f"{server.host}:{server.http_port}"
    assert healthy(f"{address}/v2/health/ready")
    assert not healthy(f"{address}/v2/models/none/ready")  # answered, but with an error
    assert not healthy("127.0.0.1:9/v2/health/ready")


def test_every_family_that_alerts_and_dashboards_ask_for_is_on_the_page(server: RunningServer) -> None:
    asked = set().union(*(families(query) for query in [*dashboard_queries(), *(rule["expr"] for rule in rules())]))
    page = get(server.metrics_url)
    given = set(re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE))
    assert asked - OF_A_GPU <= given
    assert len(asked - OF_A_GPU) > 5


def test_locust_counts_what_the_server_counts(server: RunningServer, trace_file: Path, tmp_path: Path) -> None:
    def requests() -> int:
        return counted(server, "nv_inference_request_success", "ensemble")

    def tokens(page: Page) -> dict[tuple[str, ...], float]:
        return (page - page_before).by("inflight_generated_tokens_total", "level")

    before, page_before, steps_before = requests(), at_rest(server, 0.5), len(steps(trace_file))
    with running_gateway(server.grpc_url) as gateway:
        flags = ["--gateway-url", gateway.url, "--json", tmp_path / "table.json", "--report", tmp_path / "report.html"]
        done = load(server, "tiny", *map(str, flags))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = table(tmp_path / "table.json")
    answers = {key: line for key, line in lines.items() if key[0] != "figure"}
    assert {door for door, _ in answers} == {"grpc", "http", "openai"}
    assert all(line["num_failures"] == 0 for line in lines.values())
    assert sum(line["num_requests"] for line in answers.values()) == requests() - before
    for line in answers.values():
        assert line["total_content_length"] == TOKENS * line["num_requests"]
    generated: dict[tuple[str, ...], float] = {}
    for level in (1, 2, 3):
        of_level = {door: answers[door, f"request level {level}"] for door, name in answers if name[-1] == str(level)}
        number = sum(line["num_requests"] for line in of_level.values())
        generated[str(level),] = TOKENS * number
        assert lines["figure", f"ttft level {level}"]["num_requests"] == number
        by_pieces = sum(line["num_requests"] for door, line in of_level.items() if door != "openai")
        assert lines.get(("figure", f"tokens/s level {level}"), NONE)["num_requests"] <= by_pieces
    assert "ttft level 1" in (tmp_path / "report.html").read_text()
    assert settled(server, tokens, generated) == generated
    page = Page.of(server) - page_before
    ended = page.value("inflight_requests_total")
    known = page.value("inflight_prompt_tokens_total") + page.value("inflight_generated_tokens_total")
    # A request's last token is drawn and never computed with.
    assert computed(steps(trace_file)[steps_before:]) == known - ended


def test_a_threshold_that_is_missed_makes_the_exit_code_one(server: RunningServer, tmp_path: Path) -> None:
    impossible = '[[threshold]]\nprofile = "tiny"\nentry = "ttft level 1"\nstatistic = "average"\nmax = 0.001\n'
    (tmp_path / "thresholds.toml").write_text(impossible)
    done = load(server, "tiny", "--thresholds", str(tmp_path / "thresholds.toml"), seconds=1)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "MISS  ttft level 1: average at most 0.001" in done.stdout


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("prometheus"), reason="Prometheus is not installed")
def test_prometheus_scrapes_the_server_and_every_query_of_the_dashboard_has_data(
    server: RunningServer, tmp_path: Path
) -> None:
    with running_prometheus(server, tmp_path) as prometheus:
        load(server, "tiny", seconds=10)
        queries = [query for query in dashboard_queries() if not families(query) & OF_A_GPU]
        found = {query: prometheus.ask(query.replace("$__rate_interval", "15s")) for query in queries}
        firing = prometheus.ask("ALERTS")
    assert [query for query, samples in found.items() if not samples] == []
    of_the_engine = {query: samples for query, samples in found.items() if "inflight_" in str(families(query))}
    assert [query for query, samples in of_the_engine.items() if not any(map(finite, samples))] == []
    assert found['up{job="triton"}'][0]["value"][1] == "1"
    assert firing == []
    answered = next(
        samples for query, samples in found.items() if "sum by (model) (rate(nv_inference_request_success" in query
    )
    assert {each["metric"]["model"] for each in answered if float(each["value"][1]) > 0} >= {"ensemble"}


@pytest.mark.parametrize("profile", NIGHTLY_PROFILES)
def test_each_profile_loses_no_request(server: RunningServer, tmp_path: Path, profile: str) -> None:
    done = load(server, profile, "--json", str(tmp_path / "table.json"), seconds=25)
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: slower than the thresholds, on whatever machine
    lines = table(tmp_path / "table.json")
    assert lines
    assert {key: line["num_failures"] for key, line in lines.items() if line["num_failures"]} == {}
    levels = {kind.level for kind in PROFILES[profile].kinds}
    assert {int(name[-1]) for _, name in lines} == levels
    assert any(name.startswith("abandoned") for _, name in lines) == (profile == "abandon")
