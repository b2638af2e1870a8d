"""scripts/top on two pages that a real server gave under load, shortened to what is read of them; figures by hand."""

import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from scripts.live_view import __main__ as command
from scripts.live_view.figures import History, Latency, quantile
from scripts.live_view.frame import CACHED, FREE, USED, bar, frame, sparkline
from scripts.live_view.scrape import Scrape, Unreachable, difference, parse

PAGES = [Path(__file__).with_name(name).read_text() for name in ("first.txt", "second.txt")]
MODEL = "inflight_batcher"


@pytest.fixture
def url() -> Iterator[str]:
    """A server that gives one page after the other, and then the last again."""
    left = list(PAGES)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = (left.pop(0) if len(left) > 1 else left[0]).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("sys.argv", ["top", *words])
    return command.main()


def page(**values: float) -> Scrape:
    lines = [f'inflight_{name}{{model="{MODEL}",version="1"}} {value}' for name, value in values.items()]
    return parse("\n".join(lines), MODEL, at=values["at"])


def test_labels_are_read_with_their_escapes_and_other_models_are_left_out() -> None:
    text = (
        "# HELP x y\n# TYPE x counter\n"
        'x_total{model="inflight_batcher",of="a \\"b\\", \\\\c"} 3\n'
        'x_total{model="other"} 5\n'
        'x_total{model="inflight_batcher",of="d"} 4e+2\n'
        "x_total 9\n"
    )
    scrape = parse(text, MODEL, 0.0)
    assert scrape.by("x_total", "of") == {('a "b", \\c',): 3, ("d",): 400}
    assert scrape.value("x_total") == 403
    assert scrape.value("x_total", of="d") == 400
    assert not scrape.has_engine


def test_a_difference_is_of_counters_alone() -> None:
    before, after = page(at=10, steps_total=5, running_sequences=3), page(at=12, steps_total=9, running_sequences=1)
    grown = difference(before, after)
    assert grown.at == 2
    assert {name: value for (name, _), value in grown.values.items()} == {"inflight_steps_total": 4}


def test_when_a_counter_shrinks_all_count_from_nothing_and_the_past_is_forgotten() -> None:
    before = page(at=10, steps_total=50, step_tokens_total=7)
    after = page(at=12, steps_total=6, step_tokens_total=8)
    assert difference(before, after).value("inflight_step_tokens_total") == 8
    history = History()
    for scrape in (before, after):
        history.add(scrape)
    assert history.num_restarts == 1
    assert history.figures().steps is None
    history.add(page(at=13, steps_total=9, step_tokens_total=20))
    assert (history.figures().steps, history.figures().step_tokens) == (3, 4)
    assert history.num_restarts == 1


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ([0, 10, 10], 0.5, 0.15),  # half way between 0.1 and 0.2
        ([4, 8, 8], 0.25, 0.05),  # in the first bucket, which begins at 0
        ([1, 1, 2], 0.95, 0.2),  # beyond the last bound: that bound
        ([0, 0, 0], 0.5, None),
    ],
)
def test_quantiles_lie_between_the_bounds_of_their_bucket(
    counts: list[float], share: float, expected: float | None
) -> None:
    found = quantile(dict(zip([0.1, 0.2, float("inf")], counts, strict=True)), share)
    assert found == (None if expected is None else pytest.approx(expected))


def test_bars_are_in_proportion_and_show_whatever_there_is() -> None:
    assert bar((1, *USED), (1, *CACHED), (2, *FREE), width=8).plain == "██▒▒░░░░"
    assert bar((1, *USED), (0, *CACHED), (999, *FREE), width=8).plain == "█░░░░░░░"
    assert bar((0, *USED), (0, *FREE), width=4).plain == "----"


def test_a_line_ends_with_the_newest_and_leaves_gaps_where_nothing_was() -> None:
    assert sparkline(Latency(None, None, [1.0, None, 8.0, 4.0])) == "▂ █▅"
    assert sparkline(Latency(None, None, [None])) == ""
    assert len(sparkline(Latency(None, None, [1.0] * 100), 24)) == 24


def history() -> History:
    """The two pages, as if two seconds lay between them."""
    history = History()
    for at, text in enumerate(PAGES):
        history.add(parse(text, MODEL, 2.0 * at))
    return history


def test_figures_are_those_of_the_newest_page_and_rates_the_difference_of_the_two() -> None:
    figures = history().figures()
    assert (figures.slots, figures.running, figures.swapped, figures.at_server) == (4, 3, 4, 1)
    assert (figures.used, figures.cached, figures.free) == (13, 2, 49)
    assert figures.waiting == {"1": 0, "2": 1, "3": 6}
    assert {key: count for key, count in figures.preempted.items() if count} == {("2", "swap"): 1, ("3", "swap"): 3}
    assert figures.steps == (43 - 22) / 2
    assert figures.batch == (164 - 77) / (43 - 22)
    assert figures.step_tokens == (306 - 177) / (43 - 22)
    assert figures.prompt_tokens == (93 - 62 + 93 - 0) / 2
    assert figures.generated == {"1": 13 / 2, "2": (80 - 24) / 2, "3": (69 - 55) / 2}
    assert figures.ended == 1 / 2
    first, gap = figures.first_token["1"], figures.gap["1"]
    assert first.mean == pytest.approx(0.3619769 / 2)
    assert first.p95 == pytest.approx(0.1 + (0.25 - 0.1) * 0.95)  # both lie between 0.1 and 0.25
    assert gap.mean == pytest.approx(0.7855432 / 11)
    assert gap.p95 == pytest.approx(0.1 + (0.15 - 0.1) * (0.95 * 11 - 10))  # ten of eleven are below 0.1
    assert figures.first_token["3"] == Latency(None, None, [None])


def test_a_frame_of_eighty_columns_holds_all_of_it() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(frame(history().figures(), "head", "note", width=80))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert lines[:5] == [
        "head",
        "note",
        "slots " + "█" * 30 + "░" * 10 + " 3 of 4 run",
        "pool  " + "█" * 8 + "▒" + "░" * 31 + " 13 used, 2 cached, 49 free",
        "queue level 1: 0, level 2: 1, level 3: 6       4 swapped, 1 at the server",
    ]
    assert "steps/s 10.5   sequences/step 4.1   tokens/step 6.1" in lines
    assert "prompt tokens/s 62.0   generated tokens/s 41.5   requests ended/s 0.5" in lines
    levels = [line.split() for line in lines if line[:1].isdigit()]
    assert [words[:4] for words in levels] == [
        ["1", "6.5", "0s", "0r"],
        ["2", "28.0", "1s", "0r"],
        ["3", "7.0", "3s", "0r"],
    ]
    assert "181 ms, 24" in lines[-4]
    assert "165 ms, 24" in lines[-3]
    assert [line.count("█") for line in lines[-4:-1]] == [2, 2, 1]
    assert "…" not in "".join(lines), "nothing is cut off"


def test_once_prints_one_frame(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--url", url, "--once", "--interval", "0.05") == 0
    shown = capsys.readouterr().out
    assert shown.count("slots") == 1
    assert "3 of 4 run" in shown
    assert f"{MODEL}  {url}" in shown


def test_a_server_that_goes_away_is_named_in_the_frame_and_one_that_begins_anew_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages: list[str | None] = [PAGES[1], None, PAGES[0], PAGES[1]]

    def fetched(url: str) -> str:
        if not pages:
            raise KeyboardInterrupt
        page = pages.pop(0)
        if page is None:
            raise Unreachable("it cannot be read")
        return page

    monkeypatch.setattr(command, "fetch", fetched)
    assert run(monkeypatch, "--interval", "0.05") == 130
    frames = capsys.readouterr().out.split(f"{MODEL}  http")[1:]
    assert [frame.splitlines()[1].rstrip() for frame in frames] == [
        "it cannot be read",
        *["the engine has begun anew 1 time while this view looked"] * 2,
    ]
    assert ["steps/s -" in frame for frame in frames] == [True, True, False]


def test_a_server_that_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--url", "http://127.0.0.1:9/metrics", "--once") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: http://127.0.0.1:9/metrics cannot be read: ")
    assert "Connection refused" in error
    assert error.count("\n") == 1


def test_a_server_without_the_engine_is_one_line(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--url", url, "--model", "other", "--once") == 1
    assert "shows nothing of a model other" in capsys.readouterr().err
