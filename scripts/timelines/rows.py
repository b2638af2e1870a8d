"""From a recording to rows of cells: what each request did in each step. What is drawn, before anything is drawn."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

from backend.scheduler.life import Change
from scripts.timelines.recording import Event, Recording, Work


class Kind(enum.Enum):
    """What a request does in a step. AGAIN: tokens that had been computed before a preemption took them."""

    QUEUED = "queued"
    PROMPT = "prompt chunk"
    DECODE = "decode"
    PASSED = "has a slot, no tokens"
    SWAPPED = "preempted: swapped out"
    DROPPED = "preempted: to recompute"
    AGAIN = "computed again"


CHUNKS = (Kind.PROMPT, Kind.AGAIN)
_PREEMPTED = (Kind.SWAPPED, Kind.DROPPED)
_WAITS = {Change.QUEUED: Kind.QUEUED, Change.SWAPPED: Kind.SWAPPED, Change.DROPPED: Kind.DROPPED}


class Cell(NamedTuple):
    """A kind over the columns ``first`` to ``last``, both included. A chunk has one column; start, tokens: of a chunk,
    or of a run of decodes.
    """

    kind: Kind
    first: int
    last: int
    start: int = 0
    tokens: int = 0


class Row(NamedTuple):
    """One request. reason: why it ended, "" if the recording ended first. end: the column after its last."""

    request_id: int
    level: int
    prompt: int
    output: int
    reason: str
    end: int
    cells: list[Cell]


def rows_of(recording: Recording) -> list[Row]:
    """Every request whose arrival was recorded and that a step saw, in the order of arrival."""
    arrived = {number: events for number, events in recording.events.items() if events[0]["what"] == Change.QUEUED}
    rows = [_Life(recording, number, events).row() for number, events in arrived.items()]
    return [row for row in rows if row.cells]


def cut(recording: Recording, rows: list[Row], first: int, last: int | None) -> tuple[Recording, list[Row]]:
    """The steps of the numbers ``first`` to ``last`` alone. Raises ValueError if none is left."""
    kept = [
        n for n, step in enumerate(recording.steps) if first <= step.number and (last is None or step.number <= last)
    ]
    if not kept:
        raise ValueError(f"no step from {first} on{'' if last is None else f' to {last}'} is recorded")
    begin, end = kept[0], kept[-1]
    clipped = [_clipped(row, begin, end) for row in rows]
    return Recording(recording.steps[begin : end + 1], recording.events), [row for row in clipped if row.cells]


def _clipped(row: Row, begin: int, end: int) -> Row:
    cells = list(_cells_within(row.cells, begin, end))
    seen = row.end - 1 <= end
    return row._replace(
        cells=cells, end=row.end - begin if seen else end + 1 - begin, reason=row.reason if seen else ""
    )


def _cells_within(cells: list[Cell], begin: int, end: int) -> Iterator[Cell]:
    for cell in cells:
        first, last = max(cell.first, begin), min(cell.last, end)
        if first <= last and cell.kind is Kind.DECODE:
            yield Cell(cell.kind, first - begin, last - begin, cell.start + first - cell.first, last - first + 1)
        elif first <= last:
            yield cell._replace(first=first - begin, last=last - begin)


def step_tokens(row: Row) -> Iterator[tuple[int, Kind, int]]:
    """(column, kind, tokens) of each step that computed something for the row."""
    for cell in row.cells:
        if cell.kind in CHUNKS:
            yield cell.first, cell.kind, cell.tokens
        elif cell.kind is Kind.DECODE:
            yield from ((column, Kind.DECODE, 1) for column in range(cell.first, cell.last + 1))


class Takeover(NamedTuple):
    """Room that changes hands. column: the first without the victim. victim, taker: places of their rows."""

    column: int
    victim: int
    taker: int


def takeovers(rows: list[Row]) -> list[Takeover]:
    """Preemptions in whose step a more urgent request begins to compute. Of several that begin, each is named first."""
    found = list[Takeover]()
    for place, row in enumerate(rows):
        for column in (cell.first for cell in row.cells if cell.kind in _PREEMPTED):
            takers = [n for n, other in enumerate(rows) if other.level < row.level and _begins(other, column)]
            named = [known.taker for known in found if known.column == column]
            if takers:
                found.append(Takeover(column, place, min(takers, key=named.count)))
    return found


def _begins(row: Row, column: int) -> bool:
    """Whether it computes in this column and has waited in the one before, or was not there."""
    works = {at for at, _, _ in step_tokens(row)}
    return column in works and column - 1 not in works


class _Life:
    """One request's events and work, and what they say of each column."""

    def __init__(self, recording: Recording, request_id: int, events: list[Event]) -> None:
        self._recording = recording
        self._request_id = request_id
        self._events = events
        self._works = {
            column: step.work[request_id] for column, step in enumerate(recording.steps) if request_id in step.work
        }

    def row(self) -> Row:
        arrival, last = self._events[0], self._events[-1]
        ended = last if last["what"] == Change.ENDED else {}
        end = self._end(last) if ended else len(self._recording.steps)
        return Row(
            request_id=self._request_id,
            level=arrival["level"],
            prompt=arrival["prompt"],
            output=ended.get("output", 0),
            reason=ended.get("reason", ""),
            end=end,
            cells=list(_joined(self._cells(end, arrival["prompt"]))),
        )

    def _end(self, ended: Event) -> int:
        """Who ran ends with its last work; who waited, in the step that ran at that time."""
        last = max(self._works, default=-1) + 1
        before = self._events[-2]["what"] if len(self._events) > 1 else ""
        return max(last, self._recording.running_at(ended["at"])) if before in _WAITS else last

    def _cells(self, end: int, prompt: int) -> Iterator[Cell]:
        """One for each column in which the request is there."""
        most_computed, waits = 0, self._waits(end)
        for column in range(min([*waits, *self._works], default=end), end):
            work = self._works.get(column)
            if work is None:
                yield Cell(waits.get(column, Kind.PASSED), column, column)
                continue
            yield Cell(_kind(work, prompt, most_computed), column, column, *work)
            most_computed = max(most_computed, work.start + work.tokens)

    def _waits(self, end: int) -> dict[int, Kind]:
        """Columns in which it waits, and why."""
        waits = dict[int, Kind]()
        followers = [*self._events[1:], None]
        for event, after in zip(self._events, followers, strict=True):
            if kind := _WAITS.get(event["what"]):
                at = self._recording.next_after if kind is not Kind.QUEUED else self._recording.running_at
                until = self._recording.next_after(after["at"]) if after and after["what"] != Change.ENDED else end
                waits |= dict.fromkeys(range(at(event["at"]), until), kind)
        return waits


def _kind(work: Work, prompt: int, most_computed: int) -> Kind:
    if work.start < most_computed:
        return Kind.AGAIN
    return Kind.PROMPT if work.start < prompt else Kind.DECODE


def _joined(cells: Iterator[Cell]) -> Iterator[Cell]:
    """Neighbours of one kind become one, chunks apart."""
    last: Cell | None = None
    for cell in cells:
        if last and last.kind is cell.kind and cell.kind not in CHUNKS and last.last + 1 == cell.first:
            last = last._replace(last=cell.last, tokens=last.tokens + cell.tokens)
            continue
        if last:
            yield last
        last = cell
    if last:
        yield last
