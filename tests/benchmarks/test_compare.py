"""Rounds in turns, medians and ratios that can be counted by hand, on contestants that only print."""

import json
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from scripts.benchmarks.compare import Contestant, Results, chart, compete, ours, peer, speedup, table, variant
from scripts.benchmarks.workloads import make_workloads, words

# Prints the next of its figures each time it is run.
COUNTS = """
import json, pathlib, sys
place = pathlib.Path(sys.argv[1]); turn = int(place.read_text()) if place.exists() else 0
place.write_text(str(turn + 1))
print("something else on standard output")
print(json.dumps({"workload": "mixed32", "out_tok_s": json.loads(sys.argv[2])[turn], "seconds": 1.0}))
print(json.dumps({"workload": "prefix16", "out_tok_s": 1.0, "seconds": json.loads(sys.argv[3])[turn]}))
"""


def counting(place: Path, name: str, rates: list[float], seconds: list[float]) -> Contestant:
    return Contestant(name, [sys.executable, "-c", COUNTS, str(place / name), json.dumps(rates), json.dumps(seconds)])


@pytest.fixture
def results(tmp_path: Path) -> Results:
    fast = counting(tmp_path, "fast", [10.0, 300.0, 20.0], [4.0, 1.0, 2.0])
    slow = counting(tmp_path, "slow", [5.0, 10.0, 15.0], [5.0, 5.0, 50.0])
    return compete([fast, slow], rounds=3, log=tmp_path / "log.jsonl")


def test_medians_and_ratios_are_those_of_the_figures_printed(results: Results, tmp_path: Path) -> None:
    assert results.median("fast", "mixed32", "out_tok_s") == 20.0
    assert speedup(results, "slow", "mixed32", "fast") == 0.5
    assert speedup(results, "slow", "prefix16", "fast") == pytest.approx(2.0 / 5.0)  # seconds: less is faster
    assert table(results, "fast").splitlines()[2:] == [
        "| fast | 20 (1.00 x) | 2 (1.00 x) |",
        "| slow | 10 (0.50 x) | 5 (0.40 x) |",
    ]
    turns = [json.loads(line)["contestant"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert turns == ["fast", "fast", "slow", "slow"] * 3


def test_one_that_fails_is_told_of_and_has_no_figure(capsys: pytest.CaptureFixture[str]) -> None:
    broken = Contestant("broken", [sys.executable, "-c", "raise SystemExit('no such model')"])
    results = compete([broken], rounds=1)
    assert results.names == []
    assert "broken: exit code 1: no such model" in capsys.readouterr().err


def test_the_chart_is_a_png(results: Results, tmp_path: Path) -> None:
    chart(results, tmp_path / "chart.png", "title")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_a_peers_command_gets_the_workload_and_ours_run_bare_and_served_at_each_precision() -> None:
    assert peer("vllm=python peer.py --workload {workload}", Path("/w.json")).command[-1] == "/w.json"
    with pytest.raises(ValueError, match="not of the form NAME=COMMAND"):
        peer("vllm", Path("/w.json"))
    names = [(c.name, c.served is None) for c in ours("smollm2", Path("/w.json"), ["int8"])]
    assert names == [("ours, engine, int8", True), ("ours, server, int8", False)]


def test_a_variant_is_one_door_of_ours_with_its_knobs() -> None:
    knobs = ["--model", "smollm2", "--parameter", "weight_precision=float32", "--parameter", "stream_interval=4"]
    bare = variant("engine:f32=weight_precision=float32,stream_interval=4", "smollm2", Path("/w.json"))
    assert (bare.name, bare.command[-6:], bare.served) == ("ours, engine, f32", knobs, None)
    served = variant("server:f32=weight_precision=float32,stream_interval=4", "smollm2", Path("/w.json"))
    assert (served.name, served.command[-2:], served.served) == ("ours, server, f32", ["--url", "{url}"], knobs)
    for text in ("f32=a=1", "both:f32=a=1", "engine:f32", "engine:f32=a"):
        with pytest.raises(ValueError, match="is not of the form engine:NAME="):
            variant(text, "smollm2", Path("/w.json"))


def test_workloads_are_those_of_their_description_and_of_their_seed() -> None:
    made = make_workloads(seed=3)
    assert {name: len(requests) for name, requests in made.items()} == {
        "mixed32": 32,
        "single": 1,
        "prefix16": 16,
        "long": 1,
        "long_first": 1,
    }
    assert all(32 <= len(ids) <= 256 and 32 <= n <= 128 for ids, n in made["mixed32"])
    assert (len(made["long"][0][0]), made["long"][0][1]) == (4096, 64)
    assert len({tuple(ids[:1024]) for ids, _ in made["prefix16"]}) == 1
    assert len({tuple(ids) for ids, _ in made["prefix16"]}) == 16
    assert made == make_workloads(seed=3) != make_workloads(seed=4)


def test_a_text_of_words_is_read_back_as_the_tokens_it_was_made_of(smollm2_dir: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2_dir)
    made = make_workloads(3, words(Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))))
    prompts = [ids for requests in made.values() for ids, _ in requests]
    assert all(tokenizer(tokenizer.decode(ids)).input_ids == ids for ids in prompts)
    assert len({token for ids in prompts for token in ids}) > 2_000
    at_large = made | make_workloads(3)
    assert any(tokenizer(tokenizer.decode(ids)).input_ids != ids for ids, _ in at_large["mixed32"])
