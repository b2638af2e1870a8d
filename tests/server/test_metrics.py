"""Every figure of the metrics page is what the clients, and the engine's trace of its steps, counted."""

import json
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.live_view import __main__ as live_view
from tests.metrics_page import Page, settled
from tests.server_fixture import RunningServer
from tests.step_trace import steps
from tests.triton_client import Answer, ask, collect, in_background

pytestmark = [pytest.mark.server, pytest.mark.nightly]
ENGINE = "inflight_batcher"
SLOTS, POOL_BLOCKS, BLOCK = 2, 128, 16
FRANCE = {"text_input": "The capital of France is", "stream": True}


@pytest.fixture(scope="module")
def server(smollm2_dir: Path, trace_file: Path) -> Iterator[RunningServer]:
    yield from RunningServer.fixture(
        smollm2_dir,
        max_batch_size=SLOTS,
        kv_cache_tokens=POOL_BLOCKS * BLOCK,
        parameter={"step_trace_file": trace_file, "metrics_interval_ms": 20, "preemption_mode": "recompute"},
    )


class Seen:
    """What the clients saw, in the page's terms."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.prompt: Counter[tuple[str]] = Counter()
        self.generated: Counter[tuple[str]] = Counter()
        self.gaps: Counter[tuple[str]] = Counter()
        self.seconds: Counter[tuple[str]] = Counter()
        self.prompt_lengths: list[int] = []
        self.output_lengths: list[int] = []

    def add(self, answer: Answer, level: int) -> None:
        assert not answer.error
        key = (str(level),)
        self.outcomes[answer.reason, str(level)] += 1
        self.prompt[key] += answer.num_input
        self.generated[key] += answer.num_output
        self.gaps[key] += answer.num_output - 1
        self.seconds[key] += answer.times[-1]
        self.prompt_lengths.append(answer.num_input)
        self.output_lengths.append(answer.num_output)

    def refuse(self, answer: Answer, level: str) -> None:
        assert answer.error
        self.outcomes["refused", level] += 1

    @property
    def taken_in(self) -> Counter[tuple[str]]:
        counted: Counter[tuple[str]] = Counter()
        for (outcome, level), count in self.outcomes.items():
            counted[(level,)] += count if outcome != "refused" else 0
        return +counted

    def figures(self) -> dict[str, Any]:
        return {
            "outcomes": self.outcomes,
            "prompt": self.prompt,
            "generated": self.generated,
            "first tokens": self.taken_in,
            "gaps": +self.gaps,
            "queued": self.taken_in,
            "ended": self.taken_in,
            "prompt lengths": (len(self.prompt_lengths), sum(self.prompt_lengths)),
            "output lengths": (len(self.output_lengths), sum(self.output_lengths)),
            "vllm tokens": (sum(self.prompt.values()), sum(self.generated.values())),
            "vllm counts": (self.taken_in.total(), self.gaps.total(), self.taken_in.total()),
            "nv_llm": (sum(self.prompt_lengths), sum(self.output_lengths)),
            "sequences": self.taken_in.total(),
        }


def figures(page: Page) -> dict[str, Any]:
    def lengths(name: str) -> tuple[float, float]:
        return page.value(f"{name}_count"), page.value(f"{name}_sum")

    return {
        "outcomes": page.by("inflight_requests_total", "outcome", "level"),
        "prompt": page.by("inflight_prompt_tokens_total", "level"),
        "generated": page.by("inflight_generated_tokens_total", "level"),
        "first tokens": page.by("inflight_time_to_first_token_seconds_count", "level"),
        "gaps": page.by("inflight_inter_token_seconds_count", "level"),
        "queued": page.by("inflight_queue_seconds_count", "level"),
        "ended": page.by("inflight_end_to_end_seconds_count", "level"),
        "prompt lengths": lengths("inflight_request_prompt_tokens"),
        "output lengths": lengths("inflight_request_generated_tokens"),
        "vllm tokens": (page.value("vllm:prompt_tokens_total"), page.value("vllm:generation_tokens_total")),
        "vllm counts": (
            page.value("vllm:time_to_first_token_seconds_count"),
            page.value("vllm:time_per_output_token_seconds_count"),
            page.value("vllm:e2e_request_latency_seconds_count"),
        ),
        "nv_llm": (page.value("nv_llm_input_token_len_sum"), page.value("nv_llm_output_token_len_sum")),
        "sequences": page.value("vllm:request_params_n_count"),
    }


def run_script(server: RunningServer) -> Seen:
    """Requests of each level, each outcome that a client can bring about, and preemptions."""
    url, seen = server.grpc_url, Seen()
    first = ask(url, ENGINE, input_ids=[504, 3575, 282, 4649, 314], request_output_len=4, streaming=True)
    seen.add(first, 2)
    low = [in_background(lambda: ask(url, **FRANCE, max_tokens=100, ignore_eos=True, priority=3)) for _ in range(3)]
    while Page.of(server).value("inflight_running_sequences") < SLOTS:
        time.sleep(0.02)
    for tokens in (3, 7):
        seen.add(ask(url, **FRANCE, max_tokens=tokens, priority=1), 1)
    seen.add(ask(url, **FRANCE, max_tokens=9, end_id=first.ids[0], ignore_eos=False), 2)
    seen.add(ask(url, **FRANCE, max_tokens=9, stop_words=[b" Paris"]), 2)
    seen.add(ask(url, **FRANCE, max_tokens=1000, ignore_eos=True, priority=1, timeout=500_000), 1)
    leaves = {"request_id": "leaves"}
    leaving = in_background(
        lambda: ask(
            url, ENGINE, input_ids=[504, 3575], request_output_len=1500, streaming=True, ignore_eos=True, **leaves
        )
    )
    for thread, answers in low:
        thread.join()
        seen.add(answers[0], 3)
    while not Page.of(server).value("inflight_running_sequences"):
        time.sleep(0.02)
    time.sleep(0.2)
    ask(url, ENGINE, input_ids=[0], input_lengths=1, request_output_len=1, stop=True, **leaves)
    leaving[0].join()
    seen.add(leaving[1][0], 2)
    seen.refuse(ask(url, **FRANCE, max_tokens=10**6, priority=3), "3")
    seen.refuse(ask(url, **FRANCE, max_tokens=4, temperature=-1.0), "none")
    return seen


def test_after_a_scripted_load_every_figure_is_the_clients_and_the_gauges_are_back(
    server: RunningServer, trace_file: Path
) -> None:
    seen = run_script(server)
    expected = seen.figures()
    assert {outcome for outcome, _ in seen.outcomes} == {
        *("eos", "stop", "length", "cancelled", "timeout", "refused"),
    }
    assert settled(server, figures, expected) == expected
    page = Page.of(server)
    for name in ("running", "waiting", "swapped"):
        assert page.value(f"inflight_{name}_sequences") == 0
    blocks = [page.value(f"inflight_pool_blocks{kind}") for kind in ("", "_used", "_cached", "_free")]
    assert blocks[0] == POOL_BLOCKS
    assert blocks[1] == 0
    assert blocks[2] + blocks[3] == POOL_BLOCKS
    preempted = page.by("inflight_preemptions_total", "level", "mode")
    assert preempted.keys() == {("3", "recompute")}, "the urgent took slots from the low, and nobody else lost one"
    assert page.value("inflight_recomputed_tokens_total") > 0
    check_times(page, seen)
    check_steps(page, trace_file)
    check_aliases(page, preempted["3", "recompute"])


def check_times(page: Page, seen: Seen) -> None:
    """Each of the engine's times lies within what the client measured; buckets end with everyone."""
    for level, seconds in seen.seconds.items():
        whole = page.value("inflight_end_to_end_seconds_sum", level=level[0])
        first = page.value("inflight_time_to_first_token_seconds_sum", level=level[0])
        gaps = page.value("inflight_inter_token_seconds_sum", level=level[0])
        assert 0 < first + gaps <= whole + 1e-6
        assert whole < seconds
        assert page.value("inflight_queue_seconds_sum", level=level[0]) <= first
        for name in ("time_to_first_token", "inter_token", "queue", "end_to_end"):
            ends = page.value(f"inflight_{name}_seconds_bucket", level=level[0], le="+Inf")
            assert ends == page.value(f"inflight_{name}_seconds_count", level=level[0])


def check_steps(page: Page, trace_file: Path) -> None:
    known = steps(trace_file)
    assert page.value("inflight_steps_total") == page.value("inflight_step_seconds_count") == len(known)
    assert page.value("inflight_step_tokens_total") == sum(work[2] for step in known for work in step["work"])
    assert page.value("inflight_step_sequences_total") == sum(len(step["work"]) for step in known)
    assert page.value("inflight_step_seconds_sum") == pytest.approx(sum(step["seconds"] for step in known))


def check_aliases(page: Page, preemptions: float) -> None:
    def of(family: str, label: str) -> dict[str, float]:
        return {key[0]: value for key, value in page.by(f"nv_trt_llm_{family}_metrics", label).items()}

    assert preemptions > 0
    assert of("request", "request_type") == {"max": SLOTS}
    blocks = of("kv_cache_block", "kv_cache_block_type")
    assert (blocks["max"], blocks["free"], blocks["tokens_per"]) == (POOL_BLOCKS, POOL_BLOCKS, BLOCK)
    assert "used" not in blocks
    assert blocks.get("reused", 0) == page.value("inflight_prefix_hit_tokens_total") // BLOCK
    assert of("inflight_batcher", "inflight_batcher_specific_metric") == {}
    general = of("general", "general_type")
    assert general["iteration_counter"] == page.value("inflight_steps_total")
    assert 0 <= time.time() - general["timestamp"] < 600


def test_prefix_hits_are_the_blocks_that_the_client_is_told_were_reused(server: RunningServer) -> None:
    prompt = list(range(1000, 1070))
    asked = {"input_ids": prompt, "request_output_len": 2, "return_perf_metrics": True}
    before = Page.of(server)
    reused = [int(collect(server.grpc_url, ENGINE, **asked)[-1]["kv_cache_reused_blocks"].reshape(-1)[0]) for _ in "ab"]
    assert reused == [0, 4]

    def hits(page: Page) -> float:
        return (page - before).value("inflight_prefix_hit_tokens_total")

    assert settled(server, hits, 4 * BLOCK) == 4 * BLOCK


def test_an_http_client_that_asks_is_told_the_load_in_a_header(server: RunningServer) -> None:
    body = json.dumps({"text_input": "The capital of France is", "max_tokens": 2}).encode()
    asked = urllib.request.Request(f"{server.http_url}/v2/models/ensemble/generate", body)
    asked.add_header("endpoint-load-metrics-format", "json")
    with urllib.request.urlopen(asked, timeout=60) as response:
        header = response.headers["endpoint-load-metrics"]
    if header is None:
        pytest.skip("this Triton Server makes no such header; 2.51 does not")
    named = json.loads(header.removeprefix("JSON "))["named_metrics"]
    assert named["max_token_capacity"] == POOL_BLOCKS * BLOCK
    assert 0 <= named["kv_cache_utilization"] <= 1


def test_the_live_view_shows_a_busy_server(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [in_background(lambda: ask(server.grpc_url, **FRANCE, max_tokens=300, ignore_eos=True)) for _ in range(4)]
    while Page.of(server).value("inflight_waiting_level_sequences", level="2") < 2:
        time.sleep(0.02)
    monkeypatch.setattr("sys.argv", ["top", "--url", server.metrics_url, "--once", "--interval", "0.5"])
    assert live_view.main() == 0
    shown = capsys.readouterr().out
    assert f"{SLOTS} of {SLOTS} run" in shown
    assert "level 1: 0, level 2: 2, level 3: 0" in shown
    used, cached, free = (int(n) for n in re.findall(r"(\d+) used, (\d+) cached, (\d+) free", shown)[0])
    assert used > 0
    assert used + cached + free == POOL_BLOCKS
    assert float(re.findall(r"generated tokens/s ([\d.]+)", shown)[0]) > 0
    for thread, _ in asked:
        thread.join()
