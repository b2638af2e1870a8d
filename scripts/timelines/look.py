"""How the picture looks, PNG or page: places on the axis, colours, words."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from scripts.timelines.recording import Recording
from scripts.timelines.rows import Cell, Kind, Row

AXES = ("steps", "seconds")


class Paint(NamedTuple):
    """Colours of a kind and of words on it. height: share of the row; who waits is drawn thin."""

    colour: str
    words: str
    height: float


PAINTS = {
    Kind.QUEUED: Paint("#c9cdd1", "#33383d", 0.4),
    Kind.PROMPT: Paint("#2a6f97", "#ffffff", 0.8),
    Kind.DECODE: Paint("#a8cbdc", "#1c3d4f", 0.8),
    Kind.PASSED: Paint("#dfe5e9", "#4a4f55", 0.4),
    Kind.SWAPPED: Paint("#e9b44c", "#3d2a04", 0.4),
    Kind.DROPPED: Paint("#e08e79", "#3d130a", 0.4),
    Kind.AGAIN: Paint("#7b4b94", "#ffffff", 0.8),
}
URGENT, ORDINARY = "#111111", "#5c636a"
"""Colours of the names of requests at level 1, and of the others."""
URGENT_BAND = "#f6f1e4"
"""Behind the rows of level 1."""
WORDS_IN_BARS = {Kind.QUEUED: "waits", Kind.SWAPPED: "swapped out", Kind.DROPPED: "to recompute"}


class Axis(NamedTuple):
    """What lies along the abscissa. edges: (left, right) of each column."""

    label: str
    edges: list[tuple[float, float]]

    def span(self, first: int, last: int) -> tuple[float, float]:
        """Left and right edge of the columns ``first`` to ``last``."""
        return self.edges[first][0], self.edges[last][1]

    @property
    def right(self) -> float:
        """Where the last column ends."""
        return self.edges[-1][1]


def axis_of(recording: Recording, kind: str) -> Axis:
    """One column of equal width per step, or each as long as it took. kind: one of AXES."""
    scales: dict[str, Callable[[], Axis]] = {
        "steps": lambda: Axis("engine step", [(n + 0.5, n + 1.5) for n in range(len(recording.steps))]),
        "seconds": lambda: Axis("seconds", [(step.begin, step.end) for step in recording.steps]),
    }
    return scales[kind]()


def name_of(row: Row) -> str:
    """What stands before a row."""
    return f"prompt of {row.prompt},  level {row.level}"


def told(row: Row, cell: Cell, recording: Recording) -> str:
    """A cell in words."""
    first, last = recording.steps[cell.first], recording.steps[cell.last]
    steps = f"step {first.number}" if first is last else f"steps {first.number} to {last.number}"
    tokens = f", {cell.tokens} tokens from position {cell.start}" if cell.tokens else ""
    seconds = f"{first.begin:.3f} to {last.end:.3f} s"
    return f"request {row.request_id}, level {row.level}: {cell.kind.value}, {steps}{tokens} ({seconds})"
