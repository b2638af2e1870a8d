"""Tables, percentiles, figure and command line."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from scripts.simulation import __main__ as command
from scripts.simulation.hardware import PLATFORMS
from scripts.simulation.percentiles import percentile, weighted_percentile
from scripts.simulation.scheduler_cost import measure_costs
from scripts.simulation.table import acceptance


def test_percentiles_are_measured_values() -> None:
    assert percentile([4, 1, 3, 2], 50) == 2
    assert percentile([4, 1, 3, 2], 99) == 4
    assert math.isnan(percentile([], 50))
    assert weighted_percentile({1.0: 98, 9.0: 2}, 50) == 1.0
    assert weighted_percentile({1.0: 98, 9.0: 2}, 99) == 9.0


def test_a_small_grid_writes_lines_a_table_and_a_figure_that_show_can_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, drawn = tmp_path / "cells.jsonl", tmp_path / "figure.svg"
    words = ["--requests", "30", "--load", "1", "--pool", "0.6", "--slots", "8", "--quick", "--json", str(lines)]
    monkeypatch.setattr("sys.argv", ["simulate", *words, "--figure", str(drawn)])
    assert command.main() == 0
    table = capsys.readouterr().out
    cells = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [cell["policy"] for cell in cells] == ["ours", "fcfs", "vllm", "no_evict"]
    assert len(acceptance(cells)) == 6
    assert "level-1 p99 TTFT" in table
    ElementTree.parse(drawn)
    monkeypatch.setattr("sys.argv", ["simulate", "show", str(lines)])
    assert command.main() == 0
    assert capsys.readouterr().out == table


def test_costs_are_given_for_each_size() -> None:
    lines = list(measure_costs(rounds=5, sizes=(4, 8)))
    assert [line["running"] for line in lines] == [4, 8]
    assert all(line["both_ms"] >= line["fastest_ms"] > 0 for line in lines)


def test_platforms_are_named_as_they_are_asked_for() -> None:
    assert all(name == platform.name for name, platform in PLATFORMS.items())
