"""A recorded run: the step trace that the engine's parameter ``step_trace_file`` writes, read back."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]


class Work(NamedTuple):
    """Tokens computed of one request in one step. start: position of the first of them."""

    start: int
    tokens: int


class Step(NamedTuple):
    """One step. begin, end: seconds since the first step began. work: by request id."""

    number: int
    begin: float
    end: float
    work: dict[int, Work]


class Recording:
    """Steps in order, and what happened to each request. Columns are places in ``steps``, from 0."""

    def __init__(self, steps: list[Step], events: dict[int, list[Event]]) -> None:
        """events: by request id, in order; ``at`` as ``begin`` of the steps."""
        self.steps = steps
        self.events = events
        self._begins = [step.begin for step in steps]
        self._ends = [step.end for step in steps]

    def running_at(self, seconds: float) -> int:
        """The column of the step that runs then, or of the next one."""
        return bisect_right(self._ends, seconds)

    def next_after(self, seconds: float) -> int:
        """The column of the first step that begins then or later."""
        return bisect_left(self._begins, seconds)


def read(path: Path) -> Recording:
    """Read a trace; of several runs in one file the last. Raises ValueError with the line that is none, or OSError."""
    lines = list[Event]()
    for number, text in enumerate(path.read_text().splitlines(), start=1):
        line = _line(text, f"{path}, line {number}")
        if lines and line["step"] <= lines[-1]["step"]:
            lines.clear()
        lines.append(line)
    if not lines:
        raise ValueError(f"{path}: no step is recorded")
    return _recording(lines)


def _line(text: str, place: str) -> Event:
    try:
        line = json.loads(text)
        known = {"step", "started", "seconds", "work", "events"} <= line.keys()
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{place}: not a line of a step trace ({error})") from error
    if not known:
        raise ValueError(f"{place}: not a line of a step trace: step, started, seconds, work and events are needed")
    return dict(line)


def _recording(lines: list[Event]) -> Recording:
    zero, end = lines[0]["started"], 0.0
    steps, events = list[Step](), defaultdict[int, list[Event]](list)
    for line in lines:
        # A step launched ahead began when the one before it ended.
        begin = max(line["started"] - zero, end)
        end = begin + line["seconds"]
        steps.append(Step(line["step"], begin, end, {r: Work(start, tokens) for r, start, tokens in line["work"]}))
        for event in line["events"]:
            events[event["id"]].append(event | {"at": event["at"] - zero})
    return Recording(steps, dict(events))
