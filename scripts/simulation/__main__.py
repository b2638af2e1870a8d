"""Run the real scheduler under a simulated clock and compare policies; or time the scheduler on this machine."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from scripts.command_line import exit_status
from scripts.simulation.figure import figure
from scripts.simulation.grid import Grid
from scripts.simulation.hardware import PLATFORMS, Platform
from scripts.simulation.policies import POLICIES
from scripts.simulation.scheduler_cost import measure_costs
from scripts.simulation.table import report
from scripts.simulation.workload import Mix

_REQUESTS, _QUICK_REQUESTS = 2000, 300


def main() -> int:
    """Do what the first argument says."""
    arguments = _parse()
    return exit_status(lambda: arguments.do(arguments), (OSError,))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    kinds = parser.add_subparsers(metavar="grid|show|cost", help="grid if absent")
    _add_grid(kinds.add_parser("grid", help="policies at loads and pool sizes: a table, JSON lines, a figure"))
    show = kinds.add_parser("show", help="the table and figure of JSON lines written before")
    show.add_argument("files", nargs="+", type=Path)
    show.add_argument("--figure", type=Path, help="write an SVG figure here")
    show.set_defaults(do=lambda a: _show(_read(a.files), a.figure))
    cost = kinds.add_parser("cost", help="milliseconds of schedule + commit of a decode-only step, on this machine")
    cost.add_argument("--quick", action="store_true", help="fewer rounds")
    cost.set_defaults(do=_cost)
    words = sys.argv[1:]
    bare = not words or (words[0].startswith("-") and words[0] not in ("-h", "--help"))
    return parser.parse_args(["grid", *words] if bare else words)


def _add_grid(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--platform", action="append", choices=[*PLATFORMS, "all"], help="repeatable; h100-8b if absent")
    add("--policy", action="append", choices=list(POLICIES), help="repeatable; all if absent")
    add("--load", action="append", type=float, help="share of the maximal rate; repeatable; 0.5, 0.8, 1, 1.2 if absent")
    add("--pool", action="append", type=float, help="share of the mean demand; repeatable; 2, 1, 0.6, 0.3 if absent")
    add("--cross", action="store_true", help="of the grid only what is at full load or has 60 %% of the pool")
    add("--slots", type=int, help="sequences that run at the same time, instead of the platform's")
    add("--requests", type=int, help=f"per cell ({_REQUESTS})")
    add("--seed", type=int, default=1)
    add("--quick", action="store_true", help=f"{_QUICK_REQUESTS} requests per cell: seconds, but noisy")
    add("--json", type=Path, help="append a JSON line per cell here")
    add("--figure", type=Path, help="write an SVG figure here")
    parser.set_defaults(do=_grid)


def _grid(arguments: argparse.Namespace) -> None:
    requests = arguments.requests or (_QUICK_REQUESTS if arguments.quick else _REQUESTS)
    cells = []
    for figures in _chosen(arguments).run(Mix(), arguments.seed, requests, turnovers=4 if arguments.quick else 16):
        cells.append(figures)
        if arguments.json:
            with arguments.json.open("a") as file:
                file.write(json.dumps(figures) + "\n")
    _show(cells, arguments.figure)
    print(f"\n{_speed(cells)}", file=sys.stderr)


def _chosen(arguments: argparse.Namespace) -> Grid:
    names = arguments.platform or ["h100-8b"]
    platforms = [PLATFORMS[name] for name in (PLATFORMS if "all" in names else names)]
    if arguments.slots:
        platforms = [_with_slots(platform, arguments.slots) for platform in platforms]
    grid = Grid(platforms, cross=arguments.cross)
    if arguments.policy:
        grid = grid._replace(policies=tuple(POLICIES[name] for name in arguments.policy))
    if arguments.load:
        grid = grid._replace(loads=tuple(arguments.load))
    return grid._replace(pools=tuple(arguments.pool)) if arguments.pool else grid


def _with_slots(platform: Platform, slots: int) -> Platform:
    return dataclasses.replace(platform, slots=slots, name=f"{platform.name}, {slots} slots")


def _read(files: Iterable[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def _show(cells: list[dict[str, Any]], path: Path | None) -> None:
    print(report(cells))
    if path is not None:
        path.write_text(figure(cells))


def _speed(cells: list[dict[str, Any]]) -> str:
    requests = sum(cell["requests"] for cell in cells)
    wall, processor = (sum(cell[clock] for cell in cells) * 100_000 / requests for clock in ("wall", "processor"))
    return f"{requests} requests; 100,000 take {wall:.0f} s, {processor:.0f} s of them of one processor"


def _cost(arguments: argparse.Namespace) -> None:
    for line in measure_costs(rounds=40 if arguments.quick else 400, bar=tqdm):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
