"""From an engine's steps to the trace file, to rows, to a page: each figure against the plans, or counted by hand."""

import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from backend.endings import FinishReason
from backend.engine import Engine
from backend.step_trace import StepTraceFile
from scripts.timelines import __main__ as command
from scripts.timelines.recording import Recording, read
from scripts.timelines.rows import Cell, Kind, Row, Takeover, cut, rows_of, step_tokens, takeovers
from tests.engine.engines import oracle_engine, request, run
from tests.oracle import OracleExecutor


def traced(path: Path, **options: Any) -> tuple[Engine, OracleExecutor]:
    engine, executor = oracle_engine(**options)
    StepTraceFile(path).attach(engine)
    return engine, executor


def pressed(path: Path, overlap: bool, **options: Any) -> tuple[Engine, OracleExecutor]:
    """Two that fill the slots, one that waits, and an urgent one in mid-flight."""
    engine, executor = traced(path, slots=2, step_tokens=8, overlap=overlap, **options)
    for _ in range(3):
        engine.add(request(10, 12, 3))
    for _ in range(5):
        engine.step()
    engine.add(request(9, 3, 1))
    run(engine)
    return engine, executor


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(
    ("options", "kind"), [({"prefix_cache": False}, Kind.DROPPED), ({"host_slots": 20, "mode": "swap"}, Kind.SWAPPED)]
)
def test_the_rows_hold_what_the_plans_computed_and_each_preemption(
    tmp_path: Path, overlap: bool, options: dict[str, Any], kind: Kind
) -> None:
    engine, executor = pressed(tmp_path / "trace", overlap, **options)
    rows = rows_of(read(tmp_path / "trace"))
    drawn = Counter({row.request_id: sum(tokens for _, _, tokens in step_tokens(row)) for row in rows})
    computed: Counter[int] = Counter()
    for plan in executor.plans:
        computed.update({chunk.sequence.request.request_id: chunk.num_tokens for chunk in plan.chunks})
        computed.update(sequence.request.request_id for sequence in plan.decodes)
    assert drawn == computed
    assert [row.level for row in rows] == [3, 3, 3, 1]
    assert all((row.reason, row.output) == ("length", 3 if row.level == 1 else 12) for row in rows)
    preempted = [cell for row in rows for cell in row.cells if cell.kind in (Kind.DROPPED, Kind.SWAPPED)]
    assert [cell.kind for cell in preempted] == [kind] * engine.scheduler.population.num_preemptions
    assert preempted
    again = [cell for row in rows for cell in row.cells if cell.kind is Kind.AGAIN]
    assert bool(again) == (kind is Kind.DROPPED)


def lines(*steps: dict[str, Any]) -> str:
    return "".join(json.dumps({"step": n, **step}) + "\n" for n, step in enumerate(steps, start=1))


def event(at: float, what: str, **more: Any) -> dict[str, Any]:
    return {"at": at, "id": more.pop("id", 7), "what": what, **more}


BY_HAND = lines(
    {
        "started": 100.0,
        "seconds": 1.0,
        "work": [[7, 0, 8]],
        "events": [
            event(99.8, "queued", level=3, prompt=10, max_tokens=9),
            event(99.9, "admitted"),
            event(100.5, "queued", id=8, level=1, prompt=3, max_tokens=1),
        ],
    },
    {"started": 101.0, "seconds": 1.0, "work": [[7, 8, 2]], "events": []},
    {"started": 102.0, "seconds": 1.0, "work": [[7, 10, 1]], "events": []},
    {"started": 103.0, "seconds": 1.0, "work": [[7, 11, 1]], "events": []},
    {
        "started": 104.0,
        "seconds": 1.0,
        "work": [[8, 0, 3]],
        "events": [
            event(103.95, "dropped"),
            event(103.97, "admitted", id=8),
            event(105.0, "ended", id=8, reason="eos", output=1),
        ],
    },
    {"started": 105.5, "seconds": 1.0, "work": [[7, 0, 8]], "events": [event(105.4, "resumed")]},
    {"started": 106.5, "seconds": 0.5, "work": [], "events": []},
    {"started": 107.0, "seconds": 0.5, "work": [[7, 8, 5]], "events": []},
)


@pytest.fixture
def by_hand(tmp_path: Path) -> Recording:
    (tmp_path / "hand.jsonl").write_text(BY_HAND)
    return read(tmp_path / "hand.jsonl")


def test_each_step_of_a_request_is_what_a_reader_of_the_trace_says_it_is(by_hand: Recording) -> None:
    assert rows_of(by_hand) == [
        Row(
            request_id=7,
            level=3,
            prompt=10,
            output=0,
            reason="",
            end=8,
            cells=[
                Cell(Kind.PROMPT, 0, 0, 0, 8),
                Cell(Kind.PROMPT, 1, 1, 8, 2),
                Cell(Kind.DECODE, 2, 3, 10, 2),
                Cell(Kind.DROPPED, 4, 4),
                Cell(Kind.AGAIN, 5, 5, 0, 8),
                Cell(Kind.PASSED, 6, 6),
                Cell(Kind.AGAIN, 7, 7, 8, 5),
            ],
        ),
        Row(
            request_id=8,
            level=1,
            prompt=3,
            output=1,
            reason="eos",
            end=5,
            cells=[Cell(Kind.QUEUED, 0, 3), Cell(Kind.PROMPT, 4, 4, 0, 3)],
        ),
    ]


def test_who_gives_way_points_to_the_more_urgent_one_that_begins_in_that_step(by_hand: Recording) -> None:
    rows = rows_of(by_hand)
    assert takeovers(rows) == [Takeover(column=4, victim=0, taker=1)]
    assert takeovers([rows[0], rows[1]._replace(level=3)]) == []


def test_two_that_give_way_in_one_step_point_to_two_that_begin() -> None:
    def row(level: int, *cells: Cell) -> Row:
        return Row(request_id=0, level=level, prompt=4, output=0, reason="", end=3, cells=list(cells))

    victim = row(3, Cell(Kind.DECODE, 0, 1, 4, 2), Cell(Kind.SWAPPED, 2, 2))
    taker = row(1, Cell(Kind.QUEUED, 1, 1), Cell(Kind.PROMPT, 2, 2, 0, 4))
    running = row(1, Cell(Kind.DECODE, 0, 2, 4, 3))
    assert takeovers([victim, victim, running, taker, taker]) == [Takeover(2, 0, 3), Takeover(2, 1, 4)]
    assert takeovers([victim, victim, running, taker]) == [Takeover(2, 0, 3), Takeover(2, 1, 3)]
    assert takeovers([victim, running]) == []


def test_a_cut_keeps_what_lies_within_it(by_hand: Recording) -> None:
    recording, rows = cut(by_hand, rows_of(by_hand), 2, 3)
    assert [step.number for step in recording.steps] == [2, 3]
    assert [row.cells for row in rows] == [
        [Cell(Kind.PROMPT, 0, 0, 8, 2), Cell(Kind.DECODE, 1, 1, 10, 1)],
        [Cell(Kind.QUEUED, 0, 1)],
    ]
    assert [row.reason for row in rows] == ["", ""]
    with pytest.raises(ValueError, match="no step from 9 on is recorded"):
        cut(by_hand, rows_of(by_hand), 9, None)


def test_of_several_runs_in_one_file_the_last_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    for _ in range(2):
        engine, executor = traced(path)
        sequence = engine.add(request(5, 4))
        run(engine)
    recording = read(path)
    assert len(recording.steps) == len(executor.plans)
    assert recording.events.keys() == {sequence.request.request_id}


def test_a_request_that_is_cancelled_while_it_waits_has_a_row_that_ends(tmp_path: Path) -> None:
    engine, _ = traced(tmp_path / "trace", slots=1, overlap=False)
    running, waiting = engine.add(request(4, 9)), engine.add(request(4, 9))
    for _ in range(3):
        engine.step()
    engine.cancel(waiting, FinishReason.TIMEOUT)
    run(engine)
    rows = rows_of(read(tmp_path / "trace"))
    assert [(row.request_id, row.reason) for row in rows] == [
        (running.request.request_id, "length"),
        (waiting.request.request_id, "timeout"),
    ]
    assert [(cell.kind, cell.first, cell.last) for cell in rows[1].cells] == [(Kind.QUEUED, 0, 2)]


@pytest.mark.parametrize("text", ["", "{}\n", "[1]\n", "no json\n", '{"step": 1, "started": 0, "work": []}\n'])
def test_what_is_no_trace_is_refused_in_one_line(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    monkeypatch.setattr("sys.argv", ["timeline", str(path), "--out", str(tmp_path / "page.html")])
    assert command.main() == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}")
    assert error.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("axis", ["steps", "seconds"])
def test_the_page_shows_every_cell_and_its_figures(axis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trace").write_text(BY_HAND)
    out = tmp_path / "page.html"
    monkeypatch.setattr("sys.argv", ["timeline", str(tmp_path / "trace"), "--out", str(out), "--axis", axis])
    assert command.main() == 0
    text = out.read_text()
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")  # it loads nothing
    svg = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    told = [title.text or "" for title in svg.iter("{http://www.w3.org/2000/svg}title")]
    assert len(told) == 9 + 1  # nine cells, one end
    assert "request 7, level 3: prompt chunk, step 1, 8 tokens from position 0 (0.000 to 1.000 s)" in told
    assert "request 7, level 3: preempted: to recompute, step 5 (4.000 to 5.000 s)" in told
    assert "request 8, level 1: queued, steps 1 to 4 (0.000 to 4.000 s)" in told
    assert "request 8 ended: eos, 1 tokens" in told


@pytest.mark.nightly
@pytest.mark.all_cores
def test_the_demonstration_shows_waiting_and_preemption_on_the_real_engine(
    smollm2_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripts.timelines.demo import ARRIVALS, record

    record(smollm2_dir, tmp_path / "trace")
    rows = rows_of(read(tmp_path / "trace"))
    assert [(row.level, row.prompt, row.output) for row in rows] == [(a.level, a.prompt, a.output) for a in ARRIVALS]
    kinds = [(row.level, cell.kind) for row in rows for cell in row.cells]
    assert {level for level, kind in kinds if kind in (Kind.SWAPPED, Kind.DROPPED)} == {3}
    assert {kind for _, kind in kinds} >= {*Kind} - {Kind.PASSED}
    assert {rows[each.taker].level for each in takeovers(rows)} == {1}
    out = tmp_path / "picture.png"
    monkeypatch.setattr("sys.argv", ["timeline", str(tmp_path / "trace"), "--out", str(out)])
    assert command.main() == 0
    assert out.read_bytes().startswith(b"\x89PNG")
