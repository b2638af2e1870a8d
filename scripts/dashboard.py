"""Draw a Grafana dashboard of deploy/ from what a running Prometheus has: a picture of it where there is no Grafana.

Each panel stands where the dashboard has it, with its queries' values over the last minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
COLUMNS = 24
"""Of Grafana's grid."""
POINTS = 240


class Line(NamedTuple):
    """One series of a panel: seconds before the end, and values; NaN where there is none."""

    name: str
    times: list[float]
    values: list[float]


def main() -> int:
    """Ask and draw, and report a failure in one line."""
    arguments = _parse()
    dashboard = json.loads((DASHBOARDS / f"{arguments.dashboard}.json").read_text())
    try:
        empty = draw(dashboard, arguments.prometheus, arguments.minutes * 60, arguments.out)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for title in empty:
        print(f"no data: {title}", file=sys.stderr)
    return 1 if empty else 0


def draw(dashboard: dict[str, Any], prometheus: str, seconds: float, out: Path) -> list[str]:
    """Write the picture; titles of panels that had no data. Raises OSError, or ValueError where an answer is none."""
    # Imported here: the command line answers without it.
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    panels = dashboard["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = pyplot.figure(figsize=(16, rows * 0.38), layout="constrained")
    grid = figure.add_gridspec(rows, COLUMNS)
    empty = []
    for panel in panels:
        place = panel["gridPos"]
        axes = figure.add_subplot(grid[place["y"] : place["y"] + place["h"], place["x"] : place["x"] + place["w"]])
        lines = [line for target in panel["targets"] for line in ask(prometheus, target, seconds)]
        for line in lines:
            axes.plot(line.times, line.values, label=line.name, linewidth=1.2)
        axes.set_title(panel["title"], fontsize=9, loc="left")
        axes.tick_params(labelsize=7)
        axes.set_xlim(-seconds, 0)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if lines:
            axes.legend(fontsize=6, loc="upper left")
        else:
            empty.append(panel["title"])
    figure.suptitle(f"{dashboard['title']}: the last {seconds:.0f} seconds", fontsize=11)
    figure.savefig(out, dpi=80)
    return empty


def ask(prometheus: str, target: dict[str, Any], seconds: float) -> list[Line]:
    """The series of one query, named as Grafana names them."""
    end, step = time.time(), max(seconds / POINTS, 1.0)
    query = target["expr"].replace("$__rate_interval", f"{max(15, math.ceil(4 * step))}s")
    wanted = {"query": query, "start": end - seconds, "end": end, "step": step}
    url = f"{prometheus}/api/v1/query_range?{urllib.parse.urlencode(wanted)}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as reply:
        found = json.load(reply)["data"]["result"]
    return [_line(series, target.get("legendFormat", ""), end) for series in found]


def _line(series: dict[str, Any], legend: str, end: float) -> Line:
    labels = series["metric"]
    name = legend
    for label, value in labels.items():
        name = name.replace(f"{{{{{label}}}}}", value)
    points = [(float(moment) - end, float(value)) for moment, value in series["values"]]
    return Line(name or labels.get("__name__", "value"), [t for t, _ in points], [v for _, v in points])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/dashboard", description=(__doc__ or "").splitlines()[0])
    names = sorted(path.stem for path in DASHBOARDS.glob("*.json"))
    parser.add_argument("--dashboard", choices=names, default="engine", help="(%(default)s)")
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", help="its address (%(default)s)")
    parser.add_argument("--minutes", type=float, default=5.0, help="so far back (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .png or .svg")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
