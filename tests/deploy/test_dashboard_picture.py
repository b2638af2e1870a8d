"""scripts/dashboard: what it asks Prometheus for, and that it says which panels had nothing to show."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from matplotlib import image

from scripts import dashboard


class Answers:
    """In place of Prometheus: two series for what is asked about levels, none for swapped sequences."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.empty = False
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                place, _, query = self.path.partition("?")
                assert place == "/api/v1/query_range"
                asked = dict(urllib.parse.parse_qsl(query))
                answers.asked.append(asked)
                body = json.dumps({"data": {"result": answers.series(asked)}}).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def series(self, asked: dict[str, str]) -> list[dict[str, Any]]:
        if self.empty or "preemptions" in asked["query"]:
            return []
        end = float(asked["end"])
        early = [[end - 60, "1.5"], [end - 40, "NaN"], [end - 20, "2"], [end, "2.5"]]
        return [
            {"metric": {"level": level, "mode": "swap"}, "values": early[first:]}
            for level, first in (("1", 0), ("3", 1))
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def answers() -> Iterator[Answers]:
    answers = Answers()
    yield answers
    answers.close()


@pytest.mark.parametrize("name", sorted(path.stem for path in dashboard.DASHBOARDS.glob("*.json")))
def test_every_query_of_a_dashboard_is_asked_and_panels_without_an_answer_are_named(
    answers: Answers, tmp_path: Path, name: str
) -> None:
    board = json.loads((dashboard.DASHBOARDS / f"{name}.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    unanswered = [panel["title"] for panel in board["panels"] if "preemptions" in panel["targets"][0]["expr"]]
    assert dashboard.draw(board, answers.url, 120.0, tmp_path / "picture.png") == unanswered
    assert [each["query"] for each in answers.asked] == [q.replace("$__rate_interval", "15s") for q in queries]
    assert {float(each["end"]) - float(each["start"]) for each in answers.asked} == {120.0}
    assert len({each["end"] for each in answers.asked}) == 1  # or lines that are stacked would not share their times
    assert coloured(tmp_path / "picture.png") > 100


def test_a_dashboard_without_data_is_drawn_without_lines(answers: Answers, tmp_path: Path) -> None:
    board = json.loads((dashboard.DASHBOARDS / "engine.json").read_text())
    answers.empty = True
    assert dashboard.draw(board, answers.url, 120.0, tmp_path / "picture.png") == [p["title"] for p in board["panels"]]
    assert coloured(tmp_path / "picture.png") == 0


def coloured(picture: Path) -> int:
    """Pixels that are not grey: of lines."""
    pixels = image.imread(picture)[..., :3]
    return int((pixels.max(axis=-1) - pixels.min(axis=-1) > 0.3).sum())


def test_series_are_named_as_grafana_names_them(answers: Answers) -> None:
    target = {"expr": "x", "legendFormat": "level {{level}}, {{mode}}"}
    lines = dashboard.ask(answers.url, target, 1000.0, 120.0)
    assert [line.name for line in lines] == ["level 1, swap", "level 3, swap"]
    assert [round(moment) for moment in lines[0].times] == [-60, -40, -20, 0]


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (0.25, "s", "250 ms"),
        (2.5, "s", "2.5 s"),
        (1500.0, "µs", "1.5 ms"),
        (0.0, "s", "0"),
        (0.5, "percentunit", "50%"),
        (3 * 2**30, "bytes", "3 GiB"),
        (12_000, "short", "12 k"),
        (8.0, "reqps", "8"),
    ],
)
def test_values_have_the_panels_unit(value: float, unit: str, written: str) -> None:
    assert dashboard.with_unit(value, unit) == written
