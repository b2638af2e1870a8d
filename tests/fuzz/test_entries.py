"""A piece of what scripts/fuzz sends to a real server; and what watches the server sees what is to be seen."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.__main__ import OPTIONS
from tests.fuzz.server_state import problems_at_rest, processes
from tests.fuzz.session import PROBE_TOKENS, PROMPT, Session
from tests.fuzz.small_model import save_small
from tests.reference import Reference
from tests.server_fixture import RunningServer

pytestmark = [pytest.mark.server, pytest.mark.nightly]
COUNT = int(os.environ.get("FUZZ_COUNT", "1000"))


@pytest.fixture(scope="module")
def model(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small(tmp_path_factory.mktemp("small"), smollm2_dir)


@pytest.fixture(scope="module")
def expected(model: Path) -> str:
    reference = Reference(model)
    return reference.text(PROMPT, reference.greedy(PROMPT, PROBE_TOKENS))


@pytest.fixture
def server(model: Path) -> Iterator[RunningServer]:
    yield from RunningServer.fixture(model, no_restart=True, parameter={"metrics_interval_ms": 20}, **OPTIONS)


def test_no_request_hurts_the_server_or_another_and_each_ends_with_an_answer_or_one_clear_line(
    server: RunningServer, expected: str
) -> None:
    session = Session(server, expected)
    report = session.run(seed=int(os.environ.get("FUZZ_SEED", "7")), start=0, count=COUNT)
    session.close()
    assert report.failures == []
    kinds = {kind: sum(n for (_, each), n in report.counts.items() if each == kind) for kind in ("answered", "refused")}
    assert min(kinds.values()) > COUNT // 10, report.counts


def test_a_wrong_answer_a_lost_process_and_a_busy_engine_are_all_noticed(server: RunningServer, expected: str) -> None:
    assert problems_at_rest(server) == []
    known = processes(server)
    assert {"inflight_batcher", "preprocessing", "postprocessing", "vllm_model", "tensorrt_llm"} <= set(known.values())
    wrong = Session(server, expected + "x")
    wrong.ask_all(0)
    assert len(wrong.report.failures) == 5
    wrong.close()
    session = Session(server, expected)
    (stub,) = (pid for pid, label in known.items() if label == "llmapi")
    os.kill(stub, signal.SIGKILL)
    server.process.wait(60)
    session._check(0, known)
    assert "the server has ended" in session.report.failures[0][1]
    session.close()
