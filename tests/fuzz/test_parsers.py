"""No bytes make a parser do anything but read them or refuse them in one clear line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.client_environments import ROOT, python_of
from tests.fuzz.parsers import PARSERS, Harness, samples

EXAMPLES = 40
RUNS = int(os.environ.get("FUZZ_RUNS", "20000"))
_SECONDS = 220


@st.composite
def altered(draw: st.DrawFn, sound: list[bytes]) -> bytes:
    """A sample with a piece replaced, repeated or taken out."""
    data = draw(st.sampled_from(sound))
    start = draw(st.integers(0, len(data)))
    end = draw(st.integers(start, min(start + 12, len(data))))
    piece = draw(
        st.one_of(st.binary(max_size=8), st.sampled_from([b'"', b"{", b"]", b"null", b"-1", b"1e999", b"\\ud8"]))
    )
    return data[:start] + draw(st.sampled_from([piece, data[start:end] * 3, b""])) + data[end:]


def check(harness: Harness, sound: list[bytes], examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(max_size=64) | altered(sound))
    def every(data: bytes) -> None:
        harness(data)

    for sample in sound:
        harness(sample)
    every()


@pytest.mark.parametrize("name", PARSERS)
def test_samples_and_altered_ones_are_read_or_refused(name: str) -> None:
    check(PARSERS[name], list(samples(name)), EXAMPLES)


def test_a_bug_is_found_by_altering_samples() -> None:
    def buggy(data: bytes) -> None:
        assert not (data.startswith(b'{"a') and b"null" in data)

    with pytest.raises(AssertionError):
        check(buggy, [b'{"a": 1}'], 2000)


def under_atheris(target: str, runs: int, corpus: Path) -> subprocess.CompletedProcess[str]:
    """The harness under atheris, in this environment with atheris' own folder of packages beside it."""
    packages = next(python_of("atheris").parents[1].glob("lib/python*/site-packages"))
    line = [sys.executable, "-m", "tests.fuzz.run_parser", target, str(runs), str(corpus)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(packages)])}
    return subprocess.run(
        line, capture_output=True, text=True, timeout=_SECONDS, env=environment, cwd=ROOT, check=False
    )


@pytest.mark.nightly
@pytest.mark.parametrize("name", PARSERS)
def test_no_input_that_coverage_leads_to_breaks_a_parser(name: str, tmp_path: Path) -> None:
    done = under_atheris(name, RUNS, tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert f"Done {RUNS} runs" in done.stderr


@pytest.mark.nightly
def test_a_bug_that_only_coverage_leads_to_is_found(tmp_path: Path) -> None:
    done = under_atheris("planted", 200_000, tmp_path)
    assert done.returncode != 0
    assert "planted" in done.stdout + done.stderr
