"""Ours and other engines on the same workloads, round after round in turns: medians, ratios, and a chart.

Each contestant is a command of its own that prints one JSON line per workload (peer, workload, seconds, out_tok_s), so
that none inherits anything from another, and each round begins cold for all.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

SCRIPTS = Path(__file__).resolve().parents[1]
READY = re.compile(r"gRPC ([\d.]+:\d+)")
OURS = "ours"
DOORS = ("engine", "server")
VARIANT = re.compile(r"(?P<door>engine|server):(?P<name>[^=]+)=(?P<parameters>\w+=[^,]*(,\w+=[^,]*)*)")


@dataclass(frozen=True, slots=True)
class Contestant:
    """command: its words. served: options of scripts/serve if it asks a server of ours, which runs meanwhile."""

    name: str
    command: list[str]
    served: list[str] | None = None


@dataclass(slots=True)
class Results:
    """Lines by (contestant, workload), one per round."""

    lines: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, name: str, line: dict[str, Any]) -> None:
        """One contestant's line of one workload in one round."""
        self.lines.setdefault((name, line["workload"]), []).append(line)

    def median(self, name: str, workload: str, key: str) -> float | None:
        """Median of a figure over the rounds; None if there is none."""
        values = [line[key] for line in self.lines.get((name, workload), ()) if key in line]
        return statistics.median(values) if values else None

    @property
    def names(self) -> list[str]:
        """Contestants that have a line, in order."""
        return list(dict.fromkeys(name for name, _ in self.lines))

    @property
    def workloads(self) -> list[str]:
        """Workloads that have a line, in order."""
        return list(dict.fromkeys(workload for _, workload in self.lines))


def ours(model: str, workload: Path, precisions: list[str]) -> list[Contestant]:
    """The bare engine, and the engine through a server, with the weights in each of these precisions."""
    return [
        _contestant(model, workload, door, precision, [f"weight_precision={precision}"])
        for precision in precisions
        for door in DOORS
    ]


def variant(text: str, model: str, workload: Path) -> Contestant:
    """Ours with other knobs: ``engine:NAME=KEY=VALUE,KEY=VALUE``, or ``server:`` likewise. Raises ValueError."""
    found = VARIANT.fullmatch(text)
    if not found:
        raise ValueError(f"--variant {text!r} is not of the form engine:NAME=KEY=VALUE,KEY=VALUE or server:...")
    return _contestant(model, workload, found["door"], found["name"], found["parameters"].split(","))


def _contestant(model: str, workload: Path, door: str, name: str, parameters: list[str]) -> Contestant:
    command = [sys.executable, str(SCRIPTS / "bench.py"), door, "--workload", str(workload)]
    options = ["--model", model, *(word for parameter in parameters for word in ("--parameter", parameter))]
    if door == "server":
        return Contestant(f"{OURS}, {door}, {name}", [*command, "--url", "{url}"], options)
    return Contestant(f"{OURS}, {door}, {name}", [*command, *options])


def peer(text: str, workload: Path) -> Contestant:
    """``NAME=COMMAND``; ``{workload}`` in the command is the workload file. Raises ValueError."""
    name, separator, command = text.partition("=")
    if not (name and separator and command):
        raise ValueError(f"--peer {text!r} is not of the form NAME=COMMAND")
    return Contestant(name, [word.replace("{workload}", str(workload)) for word in shlex.split(command)])


def compete(contestants: list[Contestant], rounds: int, log: Path | None = None) -> Results:
    """Run all in turns. A contestant that fails is told of on standard error and has no figure for that round."""
    results = Results()
    for _ in tqdm(range(rounds), desc="rounds", disable=None):
        for contestant in tqdm(contestants, desc="contestants", leave=False, disable=None):
            for line in _lines_of(contestant):
                results.add(contestant.name, line)
                if log is not None:
                    with log.open("a") as file:
                        file.write(json.dumps({"contestant": contestant.name, **line}) + "\n")
    return results


def _lines_of(contestant: Contestant) -> list[dict[str, Any]]:
    if contestant.served is None:
        return _run(contestant.name, contestant.command)
    with _server(contestant.served) as url:
        return _run(contestant.name, [word.replace("{url}", url) for word in contestant.command])


def _run(name: str, command: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = next(reversed(done.stderr.strip().splitlines()), "nothing on standard error")
        print(f"{name}: exit code {done.returncode}: {last}", file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@contextmanager
def _server(options: list[str]) -> Iterator[str]:
    """A server of ours on free ports; its gRPC address."""
    ports = [word for service in ("http", "grpc", "metrics") for word in (f"--{service}-port", "0")]
    command = [sys.executable, str(SCRIPTS / "serve.py"), *ports, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            found = next(filter(None, map(READY.search, process.stdout)), None)
            if found is None:
                raise OSError("the server did not become ready; scripts/serve says why")
            yield found[1]
        finally:
            process.terminate()


UNITS = {"prefix16": ("seconds", "s"), "long": ("seconds", "s"), "long_first": ("seconds", "s")}
"""Workload -> figure that counts, and its unit; of the others it is output tokens per second."""
_RATE = ("out_tok_s", "tok/s")


def table(results: Results, baseline: str) -> str:
    """Medians, and in brackets how many times as fast as the baseline."""
    heads = [f"{workload}, {UNITS.get(workload, _RATE)[1]}" for workload in results.workloads]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for name in results.names:
        cells = [_cell(results, name, workload, baseline) for workload in results.workloads]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(results: Results, name: str, workload: str, baseline: str) -> str:
    value = results.median(name, workload, UNITS.get(workload, _RATE)[0])
    if value is None:
        return "-"
    speed = speedup(results, name, workload, baseline)
    return f"{value:.4g}" + ("" if speed is None else f" ({speed:.2f} x)")


def speedup(results: Results, name: str, workload: str, baseline: str) -> float | None:
    """How many times as fast as the baseline on a workload; None if either has no figure."""
    key = UNITS.get(workload, _RATE)[0]
    value, base = (results.median(who, workload, key) for who in (name, baseline))
    if not value or not base:
        return None
    return base / value if key == "seconds" else value / base


def chart(results: Results, path: Path, title: str) -> None:
    """One group of bars per workload, a bar per contestant, as a PNG."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    workloads, names = results.workloads, results.names
    figure, panels = plt.subplots(1, len(workloads), figsize=(3.2 * len(workloads) + 1.5, 0.42 * len(names) + 1.6))
    for panel, workload in zip([panels] if len(workloads) == 1 else panels, workloads, strict=True):
        key, unit = UNITS.get(workload, _RATE)
        values = [results.median(name, workload, key) or 0.0 for name in names]
        colours = ["#2a6f97" if name.startswith(OURS) else "#b8b8b8" for name in names]
        bars = panel.barh(range(len(names)), values, color=colours)
        panel.bar_label(bars, labels=[f"{value:.3g}" if value else "-" for value in values], padding=2, fontsize=8)
        panel.set_title(f"{workload}, {unit}" + (" (less is better)" if key == "seconds" else ""), fontsize=9)
        panel.set_yticks(range(len(names)), names if panel is figure.axes[0] else [""] * len(names), fontsize=8)
        panel.invert_yaxis()
        panel.margins(x=0.18)
        panel.tick_params(axis="x", labelsize=7)
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
