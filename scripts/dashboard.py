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
WIDTH, ROW, HEADER, GAP = 15.0, 0.33, 0.4, 0.05
MARGINS = (0.62, 0.72, 0.15, 0.34)
"""Inches; the margins of a panel: left, below, right, above."""
LEVELS = {"level 1": "#c4314b", "level 2": "#2a6f97", "level 3": "#8a9199"}
OTHERS = ("#2a6f97", "#e9b44c", "#5b8c5a", "#7b4b94", "#c4314b", "#8a9199")
STYLES = ("-", "--", ":")
"""Of lines of one colour in a panel."""
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


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
    height = HEADER + ROW * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = pyplot.figure(figsize=(WIDTH, height), facecolor="#eef0f2")
    empty, end = [], time.time()
    for panel in panels:
        lines = [line for target in panel["targets"] for line in ask(prometheus, target, end, seconds)]
        if not lines:
            empty.append(panel["title"])
        _draw_panel(_axes(figure, panel), panel, lines, seconds)
    title = f"{dashboard['title']}: {seconds / 60:.2g} minutes"
    figure.text(0.1 / WIDTH, 1 - HEADER / 2 / height, title, fontsize=12, va="center")
    figure.savefig(out, dpi=88)
    pyplot.close(figure)
    return empty


def _axes(figure: Any, panel: dict[str, Any]) -> Any:
    """Those of a panel, on a card of its own where the dashboard has it."""
    from matplotlib.patches import Rectangle

    place, (width, height), unit = panel["gridPos"], figure.get_size_inches(), WIDTH / COLUMNS
    left, wide = place["x"] * unit + GAP, place["w"] * unit - 2 * GAP
    tall = place["h"] * ROW - 2 * GAP
    low = height - HEADER - place["y"] * ROW - GAP - tall
    card = Rectangle(
        (left / width, low / height), wide / width, tall / height, fc="white", ec="#d5d9dd", lw=0.8, zorder=-1
    )
    card.set_transform(figure.transFigure)
    figure.add_artist(card)
    before, below, right, above = MARGINS
    inside = (left + before, low + below, wide - before - right, tall - below - above)
    return figure.add_axes([inside[0] / width, inside[1] / height, inside[2] / width, inside[3] / height])


def _draw_panel(axes: Any, panel: dict[str, Any], lines: list[Line], seconds: float) -> None:
    from matplotlib.ticker import MaxNLocator

    wide = axes.get_position().width * WIDTH
    edge = (0.12 - MARGINS[0]) / wide
    axes.set_title(panel["title"], fontsize=10, loc="left", x=edge)
    if panel["type"] == "stat":
        axes.text(0.5, 0.5, " ".join(f"{line.values[-1]:g}" for line in lines), fontsize=40, ha="center", va="center")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        return
    defaults = panel["fieldConfig"]["defaults"]
    colours = [_colour(line.name, number) for number, line in enumerate(lines)]
    if lines and defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal":
        times, heights = _together(lines)
        axes.stackplot(times, heights, labels=[line.name for line in lines], colors=colours, alpha=0.75, linewidth=0)
    else:
        for number, (line, colour) in enumerate(zip(lines, colours, strict=True)):
            look = {
                "color": colour,
                "linestyle": STYLES[colours[:number].count(colour) % len(STYLES)],
                "linewidth": 1.4,
            }
            axes.plot(line.times, line.values, label=line.name, **look)
    axes.set_xlim(-seconds, 0)
    axes.set_ylim(bottom=0)
    axes.grid(color="#e3e5e8", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(labelsize=8, length=0)
    axes.yaxis.set_major_formatter(lambda value, _: with_unit(value, defaults.get("unit", "short")))
    axes.xaxis.set_major_locator(MaxNLocator(int(1.4 * wide), steps=[1, 1.5, 3, 6, 10]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f} s" if seconds <= 300 else f"{value / 60:.3g} min")
    if lines:
        place = {"loc": "upper left", "bbox_to_anchor": (edge, -0.11), "borderaxespad": 0.2, "ncols": 3}
        axes.legend(fontsize=7.5, frameon=False, handlelength=1.0, columnspacing=1.0, handletextpad=0.5, **place)
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", va="center", color="#8a9199")


def _colour(name: str, number: int) -> str:
    """A level has one colour in all panels."""
    return next((colour for level, colour in LEVELS.items() if level in name), OTHERS[number % len(OTHERS)])


def _together(lines: list[Line]) -> tuple[list[float], list[list[float]]]:
    """The times of all the lines, and each line's values at them; 0 where it has none."""
    moments = sorted({moment for line in lines for moment in line.times})
    known = [dict(zip(line.times, line.values, strict=True)) for line in lines]
    return moments, [[each.get(moment, 0.0) for moment in moments] for each in known]


def with_unit(value: float, unit: str) -> str:
    """As Grafana writes it, shortly; ``unit`` is one of its names."""
    if unit in ("s", "µs"):
        seconds = value if unit == "s" else value / 1e6
        scale, name = next((each for each in _TIMES if abs(seconds) >= each[0]), _TIMES[-1])
        return f"{seconds / scale:.3g} {name}" if seconds else "0"
    if unit == "bytes":
        return f"{value / 2**30:.3g} GiB"
    if unit == "percentunit":
        return f"{value:.0%}"
    return f"{value / 1000:.3g} k" if abs(value) >= 10_000 else f"{value:.4g}"


def ask(prometheus: str, target: dict[str, Any], end: float, seconds: float) -> list[Line]:
    """The series of one query over the seconds before ``end``, Unix time, named as Grafana names them."""
    step = max(seconds / POINTS, 1.0)
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
