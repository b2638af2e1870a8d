"""The timeline as a page of its own: SVG in HTML, nothing loaded from elsewhere; each cell tells its figures."""

from __future__ import annotations

from html import escape

from scripts.timelines.look import ORDINARY, PAINTS, URGENT, WORDS_IN_BARS, Axis, name_of, told
from scripts.timelines.recording import Recording
from scripts.timelines.rows import CHUNKS, Cell, Kind, Row

_COLUMN, _ROW, _LEFT, _TOP, _LETTER = 18.0, 26.0, 170.0, 8.0, 6.2
_LEAST_WIDTH, _MOST_WIDTH = 600.0, 60_000.0
_STYLE = """
body { font: 14px system-ui, sans-serif; margin: 24px; color: #222; }
.scroll { overflow-x: auto; } .legend span { margin-right: 18px; white-space: nowrap; }
.legend i { display: inline-block; width: 12px; height: 12px; margin-right: 5px; vertical-align: -1px; }
text { font: 11px system-ui, sans-serif; } rect:hover { stroke: #111; }
"""


def page(recording: Recording, rows: list[Row], axis: Axis, title: str) -> str:
    """The whole document."""
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
    what = f"{len(rows)} requests, {len(recording.steps)} steps, {recording.steps[-1].end:.2f} s. Point at a bar."
    parts = [
        f"{head}<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
        f"<p>{what}</p><p class='legend'>{_legend(rows)}</p><div class='scroll'>",
        _svg(recording, rows, axis),
        "</div></body></html>\n",
    ]
    return "\n".join(parts)


def _legend(rows: list[Row]) -> str:
    there = {cell.kind for row in rows for cell in row.cells}
    return "".join(
        f'<span><i style="background:{PAINTS[kind].colour}"></i>{kind.value}</span>' for kind in Kind if kind in there
    )


def _svg(recording: Recording, rows: list[Row], axis: Axis) -> str:
    origin = axis.edges[0][0]
    wide = min(max(_LEAST_WIDTH, _COLUMN * len(axis.edges)), _MOST_WIDTH)
    scale = wide / (axis.right - origin)
    width, height = _LEFT + wide + 20, _TOP + _ROW * len(rows) + 40
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">']
    for place, row in enumerate(rows):
        y = _TOP + place * _ROW
        colour = URGENT if row.level == 1 else ORDINARY
        parts.append(_words(_LEFT - 8, y + _ROW / 2 + 4, f"#{row.request_id}  {name_of(row)}", colour, "end"))
        for cell in row.cells:
            left, right = (_LEFT + (edge - origin) * scale for edge in axis.span(cell.first, cell.last))
            parts.append(_cell(recording, row, cell, (left, right, y)))
        if row.reason:
            x = _LEFT + (axis.edges[row.end - 1][1] - origin) * scale
            ended = f"request {row.request_id} ended: {row.reason}, {row.output} tokens"
            parts.append(_rect(x - 1.5, y + 3, 3, _ROW - 6, URGENT, ended))
    parts += _ticks(recording, axis, scale, _TOP + _ROW * len(rows))
    return "\n".join([*parts, "</svg>"])


def _cell(recording: Recording, row: Row, cell: Cell, place: tuple[float, float, float]) -> str:
    left, right, y = place
    paint = PAINTS[cell.kind]
    tall = _ROW * paint.height
    bar = _rect(left, y + (_ROW - tall) / 2, right - left - 0.6, tall, paint.colour, told(row, cell, recording))
    words = str(cell.tokens) if cell.kind in CHUNKS else WORDS_IN_BARS.get(cell.kind, "")
    if words and len(words) * _LETTER < right - left:
        bar += _words((left + right) / 2, y + _ROW / 2 + 4, words, paint.words, "middle")
    return bar


def _ticks(recording: Recording, axis: Axis, scale: float, y: float) -> list[str]:
    """At every so many columns the step's number, or its second."""
    origin, parts, free = axis.edges[0][0], list[str](), 0.0
    by_seconds = axis.label == "seconds"
    for step, (left, right) in zip(recording.steps, axis.edges, strict=True):
        x = _LEFT + ((left if by_seconds else (left + right) / 2) - origin) * scale
        if x >= free:
            parts.append(_words(x, y + 16, f"{step.begin:.2f}" if by_seconds else str(step.number), ORDINARY, "middle"))
            free = x + 60
    return [*parts, _words(_LEFT, y + 34, axis.label, ORDINARY, "start")]


def _rect(x: float, y: float, width: float, height: float, colour: str, told_at_it: str) -> str:
    box = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}"'
    return f'<rect {box} fill="{colour}"><title>{escape(told_at_it)}</title></rect>'


def _words(x: float, y: float, words: str, colour: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" pointer-events="none"'
    return f'<text {place} fill="{colour}" xml:space="preserve">{escape(words)}</text>'
