"""What the step benchmarks report can be counted by hand on a tiny model."""

from pathlib import Path

import pytest

from kernels.cpu.line_distance import line_nanoseconds
from kernels.cpu.team import Team
from scripts.benchmarks.core_distance import distances
from scripts.benchmarks.decode_step import Subject, growth, linear_fit
from scripts.benchmarks.step_profile import StepProfile, key_bytes, weight_bytes, weight_products
from tests.model.tiny_models import save_tiny


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    directory = tmp_path_factory.mktemp("tiny")
    save_tiny("llama-tied", directory)
    return Subject(directory=Path(directory), precision="int8", threads=1)


def test_growth_has_a_line_per_shape(subject: Subject) -> None:
    lines = list(growth(subject, [1, 3], [16, 40], repeats=2))
    assert [(line["sequences"], line["keys_each"], line["total_keys"]) for line in lines] == [
        (1, 16, 16), (1, 40, 40), (3, 16, 48), (3, 40, 120),
    ]  # fmt: skip
    assert all(0 < line["fastest_ms"] <= line["ms"] for line in lines)


def test_the_fit_is_the_line_through_the_points() -> None:
    points = [{"total_keys": keys, "fastest_ms": 5.0 + 0.002 * keys} for keys in (100, 1000, 4000)]
    assert linear_fit(points) == {"fixed_ms": 5.0, "ms_per_1000_keys": 2.0, "r2": 1.0}
    bent = [{"total_keys": keys, "fastest_ms": float(keys**2)} for keys in (1, 2, 3, 4, 5)]
    assert linear_fit(bent)["r2"] < 0.97


def test_the_profile_names_each_operation_and_its_parts_make_the_step(subject: Subject) -> None:
    rows = [line.split("|")[1:4] for line in StepProfile(subject).report(2, 20, repeats=3).splitlines()[2:]]
    milliseconds = {name.strip(): float(ms.strip().strip("*")) for name, ms, _ in rows}
    total = milliseconds.pop("**step**")
    floors = [name for name in milliseconds if name.startswith("floor")]
    assert len(floors) == 2
    parts = {name: ms for name, ms in milliseconds.items() if name not in floors}
    assert {f"linear {name}" for name in ("qkv", "attention_output", "down", "head")} <= set(parts)
    assert "gated_linear gate_up" in parts
    assert sum(parts.values()) == pytest.approx(total, abs=0.01 * len(parts))


def test_floors_are_counted_from_the_shapes(subject: Subject) -> None:
    config, weights = subject.load(subject.operations())
    matrices = [
        shape
        for _ in range(config.num_layers)
        for shape in (
            ((config.num_heads + 2 * config.num_kv_heads) * config.head_dim, config.hidden_size),
            (config.hidden_size, config.num_heads * config.head_dim),
            (2 * config.intermediate_size, config.hidden_size),
            (config.hidden_size, config.intermediate_size),
        )
    ] + [(config.vocab_size, config.hidden_size)]
    assert weight_products(config) == sum(2 * rows * columns for rows, columns in matrices)
    whole_panels = sum(-(-rows // 16) * 16 * (columns + 4) for rows, columns in matrices)  # a byte each, a scale a row
    assert weight_bytes(weights) == whole_panels
    assert key_bytes(config, 10, 2) == 10 * config.num_layers * 2 * config.num_kv_heads * config.head_dim * 2


def test_a_line_takes_some_time_between_two_threads_and_there_is_none_where_one_is_alone() -> None:
    two, alone = Team(2), Team(1)
    # Where other processes have the cores, the second thread may come to none of a call's tries.
    found = next(ns for ns in (line_nanoseconds(two) for _ in range(200)) if ns is not None)
    assert found > 0
    assert line_nanoseconds(alone) is None
    two.close()


def test_distances_have_a_line_per_round(subject: Subject) -> None:
    lines = list(distances(subject, tokens=40, rounds=2, pause=0.0))
    assert [line["tokens"] for line in lines] == [40, 40]
    assert all(line["line_ns"] == [None, None] and line["step_ms"] > 0 for line in lines)  # of one thread
