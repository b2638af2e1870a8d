"""Spans of requests against what the engine's own trace of its steps says, by the SDK's exporter in memory."""

import itertools
import json
import threading
from collections import defaultdict
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from backend.endings import FinishReason
from backend.engine import StepTrace
from backend.errors import ConfigError
from backend.request import Request, Sequence
from backend.scheduler.life import Change
from backend.serving.tracing import recorder as recorder_module
from backend.serving.tracing import span_maker as span_maker_module
from backend.serving.tracing.export import provider, traces_url
from backend.serving.tracing.recorder import Recorder
from backend.serving.tracing.request_spans import NAME
from backend.serving.tracing.span_maker import SpanMaker
from backend.serving.tracing.tracing import tracing_of
from tests.engine.engines import oracle_engine, request, run

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PATIENCE = 20.0


def traced(asked: Request, flags: str = "01") -> Request:
    return replace(asked, trace=json.dumps({"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-{flags}"}))


class Watched:
    """An engine whose requests are traced, and beside it what its watches saw."""

    def __init__(self, exporter: SpanExporter | None = None, **options: Any) -> None:
        self.engine, _ = oracle_engine(slots=2, step_tokens=8, **options)
        self.steps: list[StepTrace] = []
        self.changes: defaultdict[int, list[Change]] = defaultdict(list)
        self.engine.watch = self.steps.append
        self.engine.scheduler.population.watch = self._change
        self.recorder = Recorder(self.engine.clock)
        self.recorder.attach(self.engine)
        self.memory = InMemorySpanExporter()
        made = TracerProvider(shutdown_on_exit=False)
        made.add_span_processor(BatchSpanProcessor(exporter) if exporter else SimpleSpanProcessor(self.memory))
        self.maker = SpanMaker(self.recorder, made)
        self.maker.start()

    def _change(self, sequence: Sequence, change: Change) -> None:
        self.changes[sequence.request.request_id].append(change)

    def add(self, asked: Request) -> Sequence:
        return self.engine.add(asked)

    def spans(self) -> list[ReadableSpan]:
        """All, by their beginning."""
        self.maker.close()
        return sorted(self.memory.get_finished_spans(), key=lambda span: (span.start_time, span.end_time))


def told_of(root: ReadableSpan, spans: SequenceOf[ReadableSpan]) -> list[ReadableSpan]:
    return [span for span in spans if span.parent is not None and span.parent.span_id == root.context.span_id]


SPAN_OF = {
    Change.QUEUED: "queued",
    Change.ADMITTED: "running",
    Change.RESUMED: "running",
    Change.SWAPPED: "preempted",
    Change.DROPPED: "preempted",
}


@pytest.mark.parametrize(("overlap", "ahead"), [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize(("options", "mode"), [({}, "recompute"), ({"host_slots": 20, "mode": "swap"}, "swap")])
def test_the_spans_of_a_request_are_what_the_engines_own_trace_says(
    overlap: bool, ahead: bool, options: dict[str, Any], mode: str
) -> None:
    watched = Watched(overlap=overlap, ahead=ahead, **options)
    low = [watched.add(traced(request(10, 12, 3))) for _ in range(3)]
    untraced = watched.add(request(5, 4, 2))
    for _ in range(6):
        watched.engine.step()
    urgent = watched.add(traced(request(9, 3, 1)))
    run(watched.engine)
    spans = watched.spans()
    roots = {span.attributes["inflight.request_id"]: span for span in spans if span.name == NAME}
    assert roots.keys() == {s.request.request_id for s in (*low, urgent)}
    assert untraced.request.request_id not in roots
    assert {f"{span.context.trace_id:032x}" for span in spans} == {TRACE_ID}
    seen = 0
    for sequence in (*low, urgent):
        root = roots[sequence.request.request_id]
        seen += check_request(sequence, root, spans, watched, mode)
    assert seen == len(spans), "no span belongs to nobody"
    assert any(s.num_preemptions for s in low), "the urgent one took a slot"


def check_request(
    sequence: Sequence, root: ReadableSpan, spans: list[ReadableSpan], watched: Watched, mode: str
) -> int:
    """Returns how many spans belong to the request."""
    number, num_prompt = sequence.request.request_id, sequence.num_prompt
    assert f"{root.parent.span_id:016x}" == PARENT_ID
    assert root.parent.is_remote
    attributes = dict(root.attributes)
    assert attributes.pop("inflight.time_to_first_token") >= 0
    assert attributes == {
        "inflight.request_id": number,
        "inflight.level": sequence.request.level,
        "inflight.preemptions": sequence.num_preemptions,
        "gen_ai.usage.input_tokens": num_prompt,
        "gen_ai.usage.output_tokens": sequence.num_output,
        "gen_ai.request.max_tokens": sequence.request.sampling.max_tokens,
        "gen_ai.response.finish_reasons": ("length",),
    }
    changes = watched.changes[number]
    children = told_of(root, spans)
    assert [span.name for span in children] == [SPAN_OF[change] for change in changes[:-1]]
    assert all(before.end_time == after.start_time for before, after in itertools.pairwise(children))
    assert (children[0].start_time, children[-1].end_time) == (root.start_time, root.end_time)
    preempted = [span.attributes["mode"] for span in children if span.name == "preempted"]
    assert preempted == [mode] * sequence.num_preemptions
    work = [(trace, start, num) for trace in watched.steps for who, start, num in trace.work if who == number]
    high = list(itertools.accumulate((start + num for _, start, num in work), max, initial=0))
    chunks = [
        (trace.step, start, num, start < most)
        for (trace, start, num), most in zip(work, high[:-1], strict=True)
        if start < num_prompt or start < most
    ]
    told = [(stay, span) for stay in children for span in told_of(stay, spans)]
    assert [stay.name for stay, _ in told] == ["running"] * len(chunks)
    names = ("step", "first_position", "tokens", "again")
    assert [tuple(span.attributes[name] for name in names) for _, span in told] == chunks
    assert all(stay.start_time <= span.start_time for stay, span in told)
    check_events(root, changes, next(trace for trace, start, num in work if start + num >= num_prompt))
    return 1 + len(children) + len(told)


def check_events(root: ReadableSpan, changes: list[Change], first: StepTrace) -> None:
    events = [(event.name, event.timestamp) for event in root.events]
    assert [at for _, at in events] == sorted(at for _, at in events)
    names = {Change.SWAPPED: "preempted", Change.DROPPED: "preempted"}
    assert [name for name, _ in events if name != "first_token"] == [names.get(c, c.value) for c in changes[1:]]
    assert [event.attributes["step"] for event in root.events if event.name == "first_token"] == [first.step]
    assert root.start_time <= events[0][1]
    assert events[-1] == ("ended", root.end_time)


def test_a_request_that_the_server_does_not_sample_makes_no_span() -> None:
    watched = Watched()
    watched.add(traced(request(5, 4), flags="00"))
    run(watched.engine)
    assert watched.spans() == []


def test_one_that_is_cancelled_while_it_waits_has_ended_and_one_cut_off_is_an_error() -> None:
    watched = Watched(overlap=False)
    sequences = [watched.add(traced(request(5, 40))) for _ in range(3)]
    watched.engine.step()
    watched.engine.cancel(sequences[2], FinishReason.TIMEOUT)
    roots = [span for span in watched.spans() if span.name == NAME]
    ends = {span.attributes["inflight.request_id"]: span for span in roots}
    assert [span.status.status_code for span in roots].count(StatusCode.ERROR) == 2
    timed_out = ends[sequences[2].request.request_id]
    assert timed_out.attributes["gen_ai.response.finish_reasons"] == ("timeout",)
    assert [event.name for event in timed_out.events] == ["ended"]


def test_a_collector_that_hangs_holds_up_neither_the_engine_nor_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(SpanExporter):
        def __init__(self) -> None:
            self.asked, self.free = threading.Event(), threading.Event()

        def export(self, spans: SequenceOf[ReadableSpan]) -> SpanExportResult:
            self.asked.set()
            self.free.wait(PATIENCE)
            return SpanExportResult.FAILURE

    monkeypatch.setattr(span_maker_module, "_LONGEST_END_SECONDS", 0.1)
    hanging = Hanging()
    watched = Watched(exporter=hanging)
    sequence = watched.add(traced(request(5, 4)))
    run(watched.engine)
    watched.maker.close()
    assert hanging.asked.wait(PATIENCE)
    assert sequence.num_output == 4
    assert not hanging.free.is_set()
    hanging.free.set()


def test_a_collector_that_is_not_there_is_nothing_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_maker_module, "_LONGEST_END_SECONDS", 0.1)
    tracing = tracing_of("http://127.0.0.1:9")
    engine, _ = oracle_engine()
    tracing.start(engine)
    sequence = engine.add(traced(request(5, 4)))
    run(engine)
    tracing.close()
    assert sequence.finish_reason is FinishReason.LENGTH


def test_a_context_that_is_none_costs_its_own_request_alone() -> None:
    watched = Watched()
    watched.add(replace(request(5, 4), trace="no json"))
    good = watched.add(traced(request(5, 4)))
    run(watched.engine)
    roots = [span for span in watched.spans() if span.name == NAME]
    assert [span.attributes["inflight.request_id"] for span in roots] == [good.request.request_id]


def test_when_too_much_waits_for_the_spans_thread_new_requests_are_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "_MOST_HELD", -1)
    watched = Watched()
    watched.add(traced(request(5, 4)))
    run(watched.engine)
    assert watched.spans() == []
    assert watched.recorder.num_left_out == 1


def test_the_servers_context_is_the_parent_or_else_the_one_that_came() -> None:
    tracing = tracing_of("http://127.0.0.1:9")
    for own, parent in (("the server's", "the server's"), (None, "what came")):
        asked = SimpleNamespace(trace=lambda own=own: SimpleNamespace(get_context=lambda: own))
        assert tracing.context(asked, "what came") == parent
    assert tracing_of("").context(None, "what came") == ""


@pytest.mark.parametrize("endpoint", ["localhost:4318", "ftp://host", "http://", "/v1/traces"])
def test_what_is_no_address_is_refused_by_name(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"^parameter otlp_endpoint: .* is no http\(s\)://host:port"):
        provider(endpoint)


def test_the_path_of_traces_is_added_once() -> None:
    for given in ("http://host:4318", "http://host:4318/", "http://host:4318/v1/traces"):
        assert traces_url(given) == "http://host:4318/v1/traces"
    assert traces_url("https://host/collector") == "https://host/collector/v1/traces"
