"""When streams are sent what they have, by a clock that is told."""

import time

from backend.scheduler.plan import StepPlan
from backend.serving.engine_thread import EngineThread
from backend.serving.pace import Pace
from backend.serving.response_stream import ResponseStream
from backend.serving.sender_pool import SenderPool
from tests.engine.engines import oracle_engine, request
from tests.oracle import Job
from tests.serving.test_engine_thread import Recorder, expected


def test_from_one_time_to_the_next_there_pass_so_many_seconds_for_each_stream() -> None:
    pace = Pace(0.04)
    asked = [(100.0, 5), (100.1, 5), (100.19, 5), (100.21, 5), (100.3, 1), (100.33, 1), (101.0, 32), (101.7, 32)]
    due = [pace.due(now, {2: streams}) for now, streams in asked]
    # The first; 0.21 s after it, of the 0.2 s that five take; 0.09 of 0.04; 0.03 of it; 0.7 and 1.4 of 1.28 s.
    assert due == [2, 0, 0, 2, 2, 0, 0, 2]


def test_less_urgent_streams_do_not_make_more_urgent_ones_wait_and_are_sent_to_with_them() -> None:
    pace = Pace(0.04)
    streams = {3: 20, 1: 2, 2: 3}
    assert pace.due(100.0, streams) == 3
    # Two of level 1 take 0.08 s, with three of level 2 it is 0.2 s, with twenty of level 3 it is a second.
    assert [pace.due(now, streams) for now in (100.07, 100.09, 100.16, 100.21, 100.28, 100.3)] == [0, 1, 0, 2, 0, 1]
    assert pace.due(101.01, streams) == 3
    assert pace.due(101.05, streams) == 0


def test_no_pace_is_every_step() -> None:
    pace = Pace(0.0)
    assert [pace.due(1.0, streams) for streams in ({2: 1}, {1: 32, 3: 5}, {2: 1000}, {})] == [2, 3, 2, 0]


def test_at_a_slow_pace_the_first_token_and_the_end_do_not_wait_and_nothing_is_lost() -> None:
    engine, executor = oracle_engine(slots=8, blocks=400, step_tokens=64)
    run = executor.run

    def slow_run(plan: StepPlan, jobs: list[Job]) -> list[int]:
        time.sleep(0.003)  # time for a sender to take what there is
        return run(plan, jobs)

    executor.run = slow_run  # type: ignore[method-assign]
    senders = SenderPool(2)
    thread = EngineThread(engine, senders, pace=Pace(3600.0))
    thread.start()
    asked = [request(n + 3, 60) for n in range(4)]
    recorders = [Recorder() for _ in asked]
    for one, recorder in zip(asked, recorders, strict=True):
        thread.submit(one, ResponseStream(recorder, streaming=True, echo=(), text=None))
    assert [recorder.ids for recorder in recorders] == [expected(one) for one in asked]
    thread.stop()
    senders.stop()
    for recorder in recorders:
        # The first token, what came while it was being taken, at the first of the times, and the end.
        assert 2 <= len(recorder.chunks) <= 4
