"""The timeline as a PNG."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from scripts.timelines.look import ORDINARY, PAINTS, URGENT, URGENT_BAND, WORDS_IN_BARS, Axis, name_of
from scripts.timelines.recording import Recording
from scripts.timelines.rows import CHUNKS, Cell, Kind, Row, step_tokens, takeovers

_WIDTH, _ROW, _DPI = 11.0, 0.36, 160
_FONT = 9.5
_MOST_NUMBERS = 80
"""Steps for which there is room for a number each."""
_ENTRIES_OF_A_LINE = 6


def draw(recording: Recording, rows: list[Row], axis: Axis, path: Path, title: str) -> None:
    """Write it: a row per request, and below the tokens of each step. Raises OSError."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    height = 1.0 + _ROW * len(rows)
    figure, (upper, lower) = plt.subplots(
        2,
        1,
        figsize=(_WIDTH, height + 1.5),
        sharex=True,
        height_ratios=(height, 1.0),
        layout="constrained",
    )
    _draw_rows(upper, rows, axis)
    _draw_tokens(lower, rows, axis, len(recording.steps))
    _add_legend(figure, rows)
    if title:
        figure.suptitle(title, fontsize=_FONT + 1.5, x=0.01, ha="left")
    figure.savefig(path, dpi=_DPI)
    plt.close(figure)


def _draw_rows(panel: Any, rows: list[Row], axis: Axis) -> None:
    left = axis.edges[0][0]
    width, numbered = axis.right - left, len(axis.edges) <= _MOST_NUMBERS
    panel.set_xlim(left - width * 0.004, axis.right + width * 0.012)
    panel.set_ylim(len(rows) - 0.4 + numbered, -0.6)
    for place, row in enumerate(rows):
        if row.level == 1:
            panel.axhspan(place - 0.5, place + 0.5, color=URGENT_BAND, lw=0, zorder=0)
        for cell in row.cells:
            _draw_cell(panel, cell, axis, place)
        if row.reason:
            panel.plot([axis.edges[row.end - 1][1]], [place], marker="|", ms=13, mew=2.2, color=URGENT)
    names = [name_of(row) for row in rows]
    if numbered:
        _draw_numbers(panel, rows, axis)
        names.append("sequences in the step")
    _draw_takeovers(panel, rows, axis)
    panel.set_yticks(range(len(names)), names, fontsize=_FONT)
    for label, row in zip(panel.get_yticklabels()[: len(rows)], rows, strict=True):
        label.set_color(URGENT if row.level == 1 else ORDINARY)
        label.set_fontweight("bold" if row.level == 1 else "normal")
    panel.tick_params(axis="both", length=0, labelbottom=False)
    panel.spines[:].set_visible(False)


def _draw_numbers(panel: Any, rows: list[Row], axis: Axis) -> None:
    """Below the rows, how many of them each step computes for."""
    counts = [0] * len(axis.edges)
    for row in rows:
        for column, _, _ in step_tokens(row):
            counts[column] += 1
    for (begin, end), count in zip(axis.edges, counts, strict=True):
        middle = (begin + end) / 2
        panel.text(middle, len(rows), str(count), ha="center", va="center_baseline", fontsize=_FONT - 1, color=ORDINARY)


def _draw_takeovers(panel: Any, rows: list[Row], axis: Axis) -> None:
    """An arrow from who gives way to whom, along the edge of the step."""
    from matplotlib.patheffects import withStroke

    style = {"arrowstyle": "-|>", "color": URGENT, "lw": 1.4, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 11}
    style["path_effects"] = [withStroke(linewidth=3.4, foreground="white")]
    for column, victim, taker in takeovers(rows):
        at, down = axis.edges[column][0], 1 if taker > victim else -1
        panel.annotate("", (at, taker - 0.4 * down), (at, victim + 0.1 * down), arrowprops=style, zorder=4)


def _draw_cell(panel: Any, cell: Cell, axis: Axis, place: int) -> None:
    paint = PAINTS[cell.kind]
    left, right = axis.span(cell.first, cell.last)
    bar = {"height": paint.height, "color": paint.colour, "linewidth": 0}
    if cell.kind is Kind.DECODE:
        for column in range(cell.first, cell.last + 1):  # each step is to be seen
            begin, end = axis.edges[column]
            panel.barh(place, end - begin, left=begin, **{**bar, "linewidth": 0.8, "edgecolor": "white"})
        return
    panel.barh(place, right - left, left=left, **{**bar, "linewidth": 0.8, "edgecolor": "white"})
    words = str(cell.tokens) if cell.kind in CHUNKS else WORDS_IN_BARS.get(cell.kind, "")
    share = (right - left) / (axis.right - axis.edges[0][0])
    if words and share * _WIDTH * 0.8 * 72 > len(words) * _FONT * 0.52:
        panel.text(
            (left + right) / 2, place, words, ha="center", va="center_baseline", fontsize=_FONT - 1.5, color=paint.words
        )


def _draw_tokens(panel: Any, rows: list[Row], axis: Axis, num_steps: int) -> None:
    """Stacked bars: what each step computed."""
    from matplotlib.ticker import MaxNLocator

    heights = {kind: [0] * num_steps for kind in (Kind.DECODE, Kind.PROMPT, Kind.AGAIN)}
    for row in rows:
        for column, kind, tokens in step_tokens(row):
            heights[kind][column] += tokens
    below = [0] * num_steps
    lefts, widths = [begin for begin, _ in axis.edges], [end - begin for begin, end in axis.edges]
    for kind, values in heights.items():
        panel.bar(lefts, values, widths, below, align="edge", color=PAINTS[kind].colour, lw=0.8, ec="white")
        below = [low + value for low, value in zip(below, values, strict=True)]
    panel.xaxis.set_major_locator(MaxNLocator(10, integer=axis.label != "seconds"))
    panel.set_xlabel(axis.label, fontsize=_FONT)
    panel.set_ylabel("tokens\nper step", fontsize=_FONT, rotation=0, ha="right", va="center")
    panel.tick_params(labelsize=_FONT - 1, length=2)
    panel.spines[["top", "right", "left"]].set_visible(False)


def _add_legend(figure: Any, rows: list[Row]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    there = {cell.kind for row in rows for cell in row.cells}
    entries: list[Any] = [Patch(color=PAINTS[kind].colour, label=kind.value) for kind in Kind if kind in there]
    entries.append(Line2D([], [], marker="|", ls="", ms=11, mew=2.2, color=URGENT, label="end"))
    if takeovers(rows):
        entries.append(Line2D([], [], marker=r"$\downarrow$", ls="", ms=10, color=URGENT, label="gives way to"))
    figure.legend(
        handles=entries,
        loc="outside upper left",
        ncols=len(entries) if len(entries) <= _ENTRIES_OF_A_LINE else -(-len(entries) // 2),
        fontsize=_FONT - 0.5,
        frameon=False,
        handlelength=1.1,
        handleheight=1.0,
        columnspacing=1.2,
    )
