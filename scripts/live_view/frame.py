"""One frame, for rich to print; it fits 80 columns."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from scripts.live_view.figures import Figures, Latency

_BAR, _LEAST_LINE, _MOST_LINE = 40, 10, 30
_COLUMNS_BESIDE_LINES = 60
_LEGEND = "preempted: s swapped, r to recompute; times: mean, 95th percentile, past means"
_TICKS = "▁▂▃▄▅▆▇█"
USED, CACHED, FREE = ("█", "cyan"), ("▒", "blue"), ("░", "bright_black")


def frame(figures: Figures, head: str, note: str = "", width: int = 80) -> RenderableType:
    """All of it. note: what else is to be said; "" for nothing. width: columns there are."""
    line = min(max((width - _COLUMNS_BESIDE_LINES) // 2, _LEAST_LINE), _MOST_LINE)
    parts: list[RenderableType] = [Text(head, style="bold"), *([Text(note, style="yellow")] if note else [])]
    return Group(*parts, _bars(figures), _steps(figures), _levels(figures, line), Text(_LEGEND, style="bright_black"))


def _bars(figures: Figures) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, min_width=_BAR)
    idle = max(figures.slots - figures.running, 0)
    table.add_row("slots", bar((figures.running, *USED), (idle, *FREE)), f"{figures.running} of {figures.slots} run")
    pool = bar((figures.used, *USED), (figures.cached, *CACHED), (figures.free, *FREE))
    table.add_row("pool", pool, f"{figures.used} used, {figures.cached} cached, {figures.free} free")
    waiting = ", ".join(f"level {level}: {count}" for level, count in figures.waiting.items()) or "none"
    table.add_row("queue", waiting, f"{figures.swapped} swapped, {figures.at_server} at the server")
    return table


def bar(*parts: tuple[int, str, str], width: int = _BAR) -> Text:
    """Parts (amount, sign, style) in proportion, in ``width`` signs; what is there at all has one at least."""
    total = sum(amount for amount, _, _ in parts)
    if not total:
        return Text("-" * width, style="bright_black")
    sizes = [max(int(amount * width / total), amount > 0) for amount, _, _ in parts]
    sizes[sizes.index(max(sizes))] += width - sum(sizes)
    text = Text()
    for size, (_, sign, style) in zip(sizes, parts, strict=True):
        text.append(sign * size, style=style)
    return text


def _steps(figures: Figures) -> Text:
    first = {"steps/s": figures.steps, "sequences/step": figures.batch, "tokens/step": figures.step_tokens}
    second = {
        "prompt tokens/s": figures.prompt_tokens,
        "generated tokens/s": _sum(figures.generated.values()),
        "requests ended/s": figures.ended,
    }
    lines = ("   ".join(f"{name} {_number(value)}" for name, value in row.items()) for row in (first, second))
    return Text("\n" + "\n".join(lines) + "\n")


def _levels(figures: Figures, line: int) -> Table:
    """preempted: swap, recompute; times: mean, 95th percentile, and the means of the last intervals."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bright_black")
    for name in ("level", "tokens/s", "preempted", "first token, p95", "", "next token, p95", ""):
        table.add_column(name, no_wrap=True, width=line if not name else None)
    for level in figures.generated:
        cells = [level, _number(figures.generated[level]), _preempted(figures, level)]
        for latency in (figures.first_token[level], figures.gap[level]):
            cells += [f"{_seconds(latency.mean)}, {_seconds(latency.p95)}", sparkline(latency, line)]
        table.add_row(*cells)
    return table


def _preempted(figures: Figures, level: str) -> str:
    swapped, recomputed = (figures.preempted.get((level, mode), 0) for mode in ("swap", "recompute"))
    return f"{swapped}s {recomputed}r"


def sparkline(latency: Latency, width: int = _MOST_LINE) -> str:
    """The means of the last intervals, the newest at the right; the highest fills its place, a blank is no value."""
    values = latency.line[-width:]
    top = max((value for value in values if value is not None), default=0.0)
    if not top:
        return ""
    return "".join(" " if v is None else _TICKS[min(int(v / top * len(_TICKS)), len(_TICKS) - 1)] for v in values)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
