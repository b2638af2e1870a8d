"""Counts of requests and steps against a hand count, on the oracle engine and a clock that the test moves."""

from collections.abc import Callable

import pytest

from backend.endings import FinishReason
from backend.engine import StepTrace
from backend.errors import InvalidRequest
from backend.request import Sequence
from backend.serving.metrics.alias_families import ALIAS_FAMILIES
from backend.serving.metrics.counts import EngineCounts, RequestCounts
from backend.serving.metrics.engine_families import ENGINE_FAMILIES
from backend.serving.metrics.family import Family, Kind, Series, Source, series_of
from tests.engine.engines import request
from tests.scheduler.lab import ALWAYS_SWAP, Lab

Figures = dict[tuple[str, ...], float]


def all_series(family: Family, source: Source) -> list[Series]:
    return [series for values, value in family.read(source) for series in series_of(family, values, value)]


def figures(counts: EngineCounts, lab: Lab | None = None) -> Figures:
    """(family, label values ...) -> value, where that is not 0."""
    source = Source(counts, (lab or Lab()).scheduler, lambda: (lab or Lab()).scheduler.num_waiting)
    made = [s for family in ENGINE_FAMILIES + ALIAS_FAMILIES for s in all_series(family, source)]
    return {(s.family, *(value for _, value in s.labels)): s.value for s in made if s.value}


def begin(counts: EngineCounts, level: int, arrived: float, prompt: int = 4) -> tuple[Sequence, RequestCounts]:
    sequence = Sequence(request(prompt, 8, level, arrived=arrived))
    return sequence, counts.begin(sequence)


def test_a_request_is_counted_at_its_level_from_arrival_to_end() -> None:
    counts = EngineCounts()
    sequence, own = begin(counts, 1, arrived=10.0)
    sequence.first_scheduled = 10.25
    for now, token in ((10.5, 7), (10.625, 8), (11.5, 9)):
        sequence.append(token)
        own.token(now)
    own.end(FinishReason.STOP, 11.75)
    begin(counts, 3, arrived=11.0, prompt=9)  # is still under way
    level, found = counts.levels[1], figures(counts)
    assert found["inflight_requests_total", "stop", "1"] == 1
    assert found["inflight_generated_tokens_total", "1"] == 3
    assert (found["inflight_prompt_tokens_total", "1"], found["inflight_prompt_tokens_total", "3"]) == (4, 9)
    assert (level.time_to_first_token.read().sum, level.gap.read().sum) == (0.5, 1.0)
    assert (level.queue.read().sum, level.whole.read().sum) == (0.25, 1.75)
    assert ("inflight_inter_token_seconds_bucket", "1", "0.1") not in found
    assert found["inflight_inter_token_seconds_bucket", "1", "0.15"] == 1
    assert found["inflight_inter_token_seconds_bucket", "1", "1"] == 2
    assert found["vllm:time_per_output_token_seconds_bucket", "0.75"] == 1
    assert found["vllm:generation_tokens_total",] == 3
    assert found["vllm:prompt_tokens_total",] == 13
    assert found["inflight_request_prompt_tokens_sum",] == 4, "lengths are counted at the end"
    assert found["nv_llm_output_token_len_bucket", "total_output_tokens", "10"] == 1


def test_a_request_that_never_got_a_slot_has_no_queue_time_but_an_end() -> None:
    counts = EngineCounts()
    _, own = begin(counts, 2, arrived=1.0)
    own.end(FinishReason.TIMEOUT, 3.0)
    found = figures(counts)
    assert found["inflight_requests_total", "timeout", "2"] == 1
    assert found["inflight_end_to_end_seconds_count", "2"] == 1
    assert ("inflight_queue_seconds_count", "2") not in found
    assert ("inflight_time_to_first_token_seconds_count", "2") not in found


def test_refusals_are_counted_with_their_level_or_as_none_from_both_threads() -> None:
    counts = EngineCounts()
    counts.refuse(3)
    counts.end_unbegun(request(3, 3, 3), "refused")
    counts.end_unbegun(request(3, 3, 1), "error")
    with pytest.raises(InvalidRequest), counts.refusals(None):
        raise InvalidRequest("priority", "is none")
    with pytest.raises(ZeroDivisionError), counts.refusals(None):
        raise ZeroDivisionError
    found = {key[1:]: value for key, value in figures(counts).items() if key[0] == "inflight_requests_total"}
    assert found == {("refused", "3"): 2, ("error", "1"): 1, ("refused", "none"): 1}


def test_steps_are_counted_with_their_tokens_and_sequences_and_passed_on() -> None:
    counts, seen = EngineCounts(), list[StepTrace]()
    watch = counts.watching(seen.append)
    traces = [StepTrace(1, 0.0, 0.25, [(1, 0, 7), (2, 0, 1)]), StepTrace(2, 0.3, 0.5, [(1, 7, 1)])]
    watch(traces[0])
    assert counts.last_chunk_tokens == 7
    watch(traces[1])
    assert (counts.steps, counts.step_tokens, counts.step_sequences, counts.last_chunk_tokens) == (2, 9, 3, 0)
    assert counts.step_seconds.read().sum == 0.75
    assert seen == traces


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemptions_are_counted_by_level_and_mode_and_the_gauges_follow(mode: str) -> None:
    costs = {"costs": ALWAYS_SWAP} if mode == "swap" else {}
    lab = Lab(slots=1, blocks=20, host_slots=10, prefix_cache=False, **costs)
    lab.add(9, 8, 3)
    lab.steps(3)
    lab.add(3, 2, 1)
    lab.step()
    found = figures(EngineCounts(), lab)
    assert {key: v for key, v in found.items() if "preemptions" in key[0]} == {
        ("inflight_preemptions_total", "3", mode): 1
    }
    assert found["inflight_running_sequences",] == found["inflight_waiting_sequences",] == 1
    assert found.get(("inflight_swapped_sequences",), 0) == (1 if mode == "swap" else 0)
    assert found.get(("inflight_swapped_blocks_total",), 0) == (3 if mode == "swap" else 0)
    assert found.get(("inflight_recomputed_tokens_total",), 0) == (0 if mode == "swap" else 11)
    assert found["nv_trt_llm_inflight_batcher_metrics", "paused_requests"] == 1
    # One block of four tokens holds the urgent one's three; what the victim held is free, or still behind its fence.
    assert found["inflight_pool_blocks",] == 20
    assert found["inflight_pool_blocks_used",] + found["inflight_pool_blocks_free",] == 20
    assert found["nv_trt_llm_kv_cache_block_metrics", "tokens_per"] == 4
    lab.run()
    found = figures(EngineCounts(), lab)
    for gone in ("running_sequences", "waiting_sequences", "swapped_sequences", "pool_blocks_used"):
        assert (f"inflight_{gone}",) not in found
    assert found["inflight_pool_blocks_free",] == 20
    assert ("nv_trt_llm_inflight_batcher_metrics", "paused_requests") not in found


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lab: setattr(lab.scheduler.population, "num_paused", 1),
        lambda lab: setattr(lab.scheduler.residency, "num_swapped", 1),
    ],
)
def test_the_integrity_check_fires_on_a_wrong_count(spoil: Callable[[Lab], None]) -> None:
    lab = Lab()
    lab.scheduler.check_integrity()
    spoil(lab)
    with pytest.raises(AssertionError):
        lab.scheduler.check_integrity()


def test_a_model_that_is_loaded_again_says_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for now in (1700000000.25, 1700000031.75):
        monkeypatch.setattr("time.time", lambda now=now: now)
        assert figures(EngineCounts())["inflight_loaded_timestamp_seconds",] == int(now)


def test_every_series_has_all_labels_of_its_family_and_no_label_twice() -> None:
    source = Source(EngineCounts(), Lab().scheduler, lambda: 0)
    for family in ENGINE_FAMILIES + ALIAS_FAMILIES:
        made = all_series(family, source)
        assert made, family.name
        assert len({(s.family, s.labels) for s in made}) == len(made)
        for series in made:
            names = tuple(name for name, _ in series.labels if name != "le")
            assert names == family.labels
            assert series.kind is not Kind.HISTOGRAM
