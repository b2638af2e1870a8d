"""A figure without a plotting library: small panels of lines, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from html import escape
from typing import Any, NamedTuple

from scripts.simulation.grid import FULL_LOAD

Figures = dict[str, Any]
COLOURS = {"ours": "#0072b2", "fcfs": "#999999", "vllm": "#d55e00", "no_evict": "#009e73"}
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 250, 190, 56, 60, 84


class Panel(NamedTuple):
    """One panel. value: what is drawn of a cell, against the pool's size."""

    title: str
    value: Callable[[Figures], float]
    logarithmic: bool


PANELS = (
    Panel("goodput, tokens/s", lambda f: f["goodput"], False),
    Panel("level 1: p99 TTFT, s", lambda f: f["levels"]["1"]["ttft_p99"], True),
    Panel("level 3: p99 TTFT, s", lambda f: f["levels"]["3"]["ttft_p99"], True),
    Panel("useful / computed tokens, %", lambda f: 100 * f["useful"], False),
)


def figure(cells: list[Figures]) -> str:
    """A row of panels for each platform, at full load; the pool's size along the abscissa."""
    full = [f for f in cells if f["load"] == FULL_LOAD]
    rows = list(dict.fromkeys(f["platform"] for f in full))
    width = _LEFT + len(PANELS) * (_WIDTH + _GAP)
    height = _TOP + len(rows) * (_HEIGHT + _GAP)
    body = [_legend()]
    for row, platform in enumerate(rows):
        own = [f for f in full if f["platform"] == platform]
        y = _TOP + row * (_HEIGHT + _GAP)
        for column, panel in enumerate(PANELS):
            body.append(_panel(panel, own, _LEFT + column * (_WIDTH + _GAP), y, platform))
    style = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" {style}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>"]) + "\n"


def _legend() -> str:
    entries = []
    for n, (name, colour) in enumerate(COLOURS.items()):
        x = _LEFT + 110 * n
        entries.append(f'<path d="M{x} 16h24" stroke="{colour}" stroke-width="3"/>' + _text(x + 30, 20, name))
    return "".join(entries)


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


class _Axis(NamedTuple):
    """Values low .. high drawn from pixel ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            marks = [digit * 10.0**power for power in range(first, last + 1) for digit in (1, 3)]
        else:
            step = _round_step((self.high - self.low) / 4)
            marks = [step * n for n in range(int(self.low / step), int(self.high / step) + 1)]
        return [mark for mark in marks if self.low <= mark <= self.high]


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least)


def _panel(panel: Panel, cells: list[Figures], x: float, y: float, platform: str) -> str:
    values = [max(panel.value(f), 1e-6) for f in cells]
    low, high = (min(values) / 1.3, max(values) * 1.3) if panel.logarithmic else (0.0, max(values) * 1.05)
    across = _Axis(0.25, 2.4, x, x + _WIDTH, True)
    up = _Axis(low, high, y + _HEIGHT, y, panel.logarithmic)
    parts = [
        _text(x, y - 10, f"{platform}: {panel.title}"),
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#444"/>',
        *_marks(across, up, sorted({f["pool"] for f in cells})),
        _text(x + _WIDTH / 2, y + _HEIGHT + 34, "pool / mean demand", "middle"),
    ]
    for policy, colour in COLOURS.items():
        points = sorted((f["pool"], max(panel.value(f), 1e-6)) for f in cells if f["policy"] == policy)
        parts.append(_line([(across.at(pool), up.at(value)) for pool, value in points], colour))
    return "\n".join(parts)


def _marks(across: _Axis, up: _Axis, pools: Iterable[float]) -> list[str]:
    bottom, left = up.start, across.start
    marks = [_text(across.at(pool), bottom + 16, f"{pool:.0%}", "middle") for pool in pools]
    for value in up.ticks():
        marks.append(_text(left - 6, up.at(value) + 4, f"{value:g}", "end"))
        marks.append(f'<path d="M{left:.1f} {up.at(value):.1f}H{across.end:.1f}" stroke="#ddd"/>')
    return marks


def _line(points: list[tuple[float, float]], colour: str) -> str:
    if not points:
        return ""
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points)
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}'
