"""The engine's thread and the senders, on the oracle engine, with clients that only record."""

import threading
import time
from collections.abc import Iterator

import pytest

from backend.endings import FinishReason
from backend.engine import Engine
from backend.request import Request
from backend.scheduler.plan import StepPlan
from backend.serving.engine_thread import EngineThread
from backend.serving.response_stream import Chunk, ResponseStream
from backend.serving.sender_pool import SenderPool
from tests.engine.engines import idle, oracle_engine, request
from tests.oracle import Job, OracleExecutor, lone_run

PATIENCE = 20.0


class Recorder:
    """A client. ``slow``: seconds that each response takes to be taken."""

    def __init__(self, slow: float = 0.0) -> None:
        self.chunks: list[Chunk] = []
        self.done = threading.Event()
        self.slow = slow

    def send(self, chunk: Chunk) -> None:
        time.sleep(self.slow)
        self.chunks.append(chunk)
        if chunk.final:
            self.done.set()

    def is_cancelled(self) -> bool:
        return False

    @property
    def ids(self) -> list[int]:
        assert self.done.wait(PATIENCE), "no final response"
        assert [c.final for c in self.chunks] == [False] * (len(self.chunks) - 1) + [True]
        return [token for chunk in self.chunks for token in chunk.ids]


class Served:
    """An engine behind its thread, as the Triton model has it."""

    def __init__(self) -> None:
        self.engine, self.executor = oracle_engine(slots=8, blocks=400, step_tokens=64)
        self.senders = SenderPool(2)
        self.died = threading.Event()
        self.thread = EngineThread(self.engine, self.senders, on_death=self.died.set)
        self.thread.start()

    def ask(self, asked: Request, recorder: Recorder | None = None, streaming: bool = True) -> Recorder:
        recorder = recorder or Recorder()
        stream = ResponseStream(recorder, streaming=streaming, echo=(), text=None)
        self.thread.submit(asked, stream)
        return recorder

    def stop(self) -> None:
        self.thread.stop()
        self.senders.stop()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.stop()


def expected(asked: Request) -> list[int]:
    return lone_run(asked.prompt, asked.sampling.max_tokens)


def test_many_streams_each_get_their_own_tokens_in_order_and_one_final_response(served: Served) -> None:
    asked = [request(n % 9 + 1, n % 13 + 1) for n in range(60)]
    recorders = [served.ask(one) for one in asked]
    assert [r.ids for r in recorders] == [expected(one) for one in asked]
    assert all(sum(c.num_output for c in r.chunks) == len(r.ids) for r in recorders)
    assert {r.chunks[-1].finish_reason for r in recorders} == {FinishReason.LENGTH}


def test_without_streaming_there_is_exactly_one_response(served: Served) -> None:
    asked = request(5, 12)
    recorder = served.ask(asked, streaming=False)
    assert recorder.ids == expected(asked)
    assert len(recorder.chunks) == 1


def test_a_slow_client_gets_several_tokens_in_one_response_and_none_twice(served: Served) -> None:
    asked = request(5, 60)
    recorder = served.ask(asked, Recorder(slow=0.02))
    assert recorder.ids == expected(asked)
    assert len(recorder.chunks) < 40


def test_with_an_interval_responses_wait_for_so_many_tokens_but_the_first_and_the_last_do_not() -> None:
    stream = ResponseStream(Recorder(), streaming=True, echo=(), text=None, interval=4)
    sent = []
    for token in range(11):
        stream.push(token)
        if stream.wants_sending():
            sent.append(stream.take().ids)
    stream.finish(FinishReason.LENGTH)
    assert stream.wants_sending()
    sent.append(stream.take().ids)
    assert sent == [[0], [1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


def test_a_request_that_can_never_fit_is_refused_and_the_next_one_answered(served: Served) -> None:
    refused = served.ask(request(150, 100))
    assert refused.ids == []
    failure = refused.chunks[-1].failure
    assert failure is not None
    assert failure.code == "INVALID_ARG"
    assert "needs 250 tokens (prompt 150 + max_tokens 100), max_seq_len is 200" in failure.message
    asked = request(5, 3)
    assert served.ask(asked).ids == expected(asked)


def test_a_failing_step_is_an_error_to_those_it_touched_and_the_next_request_is_answered(served: Served) -> None:
    launch = served.executor.launch
    served.executor.launch = lambda plan: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    broken = served.ask(request(5, 3))
    assert broken.ids == []
    assert broken.chunks[-1].failure == ("the engine step failed", "INTERNAL")
    served.executor.launch = launch  # type: ignore[method-assign]
    asked = request(5, 3)
    assert served.ask(asked).ids == expected(asked)


def test_when_the_thread_dies_everyone_inside_and_after_gets_an_error(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = served.ask(request(5, 100), Recorder())
    monkeypatch.setattr(Engine, "step", lambda self: 1 / 0)
    assert running.done.wait(PATIENCE)
    assert running.chunks[-1].failure is not None
    assert served.died.wait(PATIENCE)
    assert not served.thread.alive
    late = served.ask(request(5, 3))
    assert late.ids == []
    assert late.chunks[-1].failure == ("the engine has stopped", "UNAVAILABLE")


def test_unloading_ends_open_requests_with_an_error_and_joins_the_threads() -> None:
    served = Served()
    slow = threading.Event()
    launch = served.executor.launch

    def waiting_launch(plan: object) -> object:
        slow.set()
        time.sleep(0.01)
        return launch(plan)  # type: ignore[arg-type]

    served.executor.launch = waiting_launch  # type: ignore[assignment,method-assign]
    open_stream = served.ask(request(5, 150))
    assert slow.wait(PATIENCE)
    served.stop()
    assert open_stream.done.is_set()
    assert open_stream.chunks[-1].failure == ("the model is being unloaded", "UNAVAILABLE")
    assert not served.thread.alive


def test_the_pool_is_empty_when_all_are_answered(served: Served) -> None:
    for recorder in [served.ask(request(9, 9)) for _ in range(20)]:
        recorder.ids  # noqa: B018 - waits for the end
    served.stop()
    assert idle(served.engine)
    assert isinstance(served.executor, OracleExecutor)


def test_a_client_whose_channel_breaks_does_not_stop_the_others(served: Served) -> None:
    class Broken(Recorder):
        def send(self, chunk: Chunk) -> None:
            raise RuntimeError("gone")

    served.ask(request(5, 5), Broken())
    recorders = [(one, served.ask(one)) for one in [request(5, 5) for _ in range(6)]]
    assert all(recorder.ids == expected(one) for one, recorder in recorders)


def test_an_urgent_arrival_ends_the_less_urgent_step_under_way() -> None:
    served = Served()
    entered, go_on = threading.Event(), threading.Event()
    run = served.executor.run

    def held(plan: StepPlan, jobs: list[Job]) -> list[int]:
        entered.set()
        assert go_on.wait(PATIENCE)
        return run(plan, jobs)

    served.executor.run = held  # type: ignore[method-assign]
    low, urgent = request(40, 3, 3), request(5, 2, 1)
    first = served.ask(low)
    assert entered.wait(PATIENCE)
    second = served.ask(urgent)
    go_on.set()
    assert (first.ids, second.ids) == (expected(low), expected(urgent))
    # The prompt of 40 was begun, ended early, and is in the step of the urgent one again.
    works = [[(c.sequence.request.request_id, c.start) for c in plan.chunks] for plan in served.executor.plans[:2]]
    assert works[0] == [(low.request_id, 0)]
    assert works[1] == [(urgent.request_id, 0), (low.request_id, 0)]
    served.stop()
