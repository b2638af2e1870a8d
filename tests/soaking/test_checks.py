"""The soak's verdict: nothing is wrong with a good run, and each thing that goes wrong is seen, under its own name."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from scripts.soaking import checks, report
from scripts.soaking.disturbances import KILLED_ENGINE, STUCK_ENGINE, Event
from scripts.soaking.ledger import Outcome
from scripts.soaking.run import STEADY
from scripts.soaking.traffic import BAD

from .runs import END_AT, KILL_AT, SERVING_AT, STEADY_AT, add, figures, good, sample

ONE_END = "every request ended in exactly one way"
EXPLAINED = "every outcome is explained"
KINDS = "every kind of request was answered"
RECOVERED = "after each disturbance it served again, in time"
TOLD = "those whose stream broke heard of it in time"
TEXT = "its text stayed the same"
COUNTS = "the engine counted what the clients did"
POOL = "the pool is empty at the end"
MEMORY, FILES, REMAINS = "no memory leaks", "no files leak", "nothing is left behind"
RUN = "it was run to its end"


def lost_request(seen):
    add(seen, KILL_AT - 1, None)


def ends_twice(seen):
    seen.ledger.end(seen.ledger.records()[1], Outcome.WHOLE)


def takes_for_ever(seen):
    add(seen, 300.0, 300.0 + checks.LONGEST_SECONDS + 1)


def error_in_peace(seen):
    add(seen, 150.0, 151.0, Outcome.FAILED, "the engine step failed")


def error_while_only_flooded(seen):
    add(seen, STEADY_AT + 21, STEADY_AT + 22, Outcome.FAILED, "the engine step failed")


def short_answer(seen):
    add(seen, 150.0, 151.0, Outcome.FAILED, "an answer of 8 tokens was asked for, but another number came")


def bad_request_answered(seen):
    add(seen, 150.0, 151.0, Outcome.WHOLE, kind=BAD)


def answer_that_cannot_be_read(seen):
    add(seen, KILL_AT, KILL_AT + 1, Outcome.FAILED, "the client failed: KeyError('text_output')")


def kind_never_answered(seen):
    for record in seen.ledger.records():
        if record.kind == "urgent":
            record.kind = "usual"


def late_readiness(seen):
    seen.events[0].not_ready = 5.1


def late_recovery(seen):
    seen.events[0].ended = KILL_AT + 30.1


def no_recovery(seen):
    seen.events[0].ended, seen.events[0].problem = None, "nothing happened"


def nothing_done(seen):
    seen.events.clear()


def told_late(seen):
    seen.events[0].ended = KILL_AT + 20
    add(seen, KILL_AT - 1, KILL_AT + 10.1, Outcome.FAILED, "Socket closed")


def other_text(seen):
    seen.events[0].text = " London."


def no_probe(seen):
    seen.first_text = ""


def engine_missed_one(seen):
    seen.after = seen.after._replace(engine=figures(outcomes=Counter(length=10, cancelled=2, refused=1)))


def engine_refused_one_more(seen):
    seen.after = seen.after._replace(engine=figures(outcomes=Counter(length=11, cancelled=2, refused=2)))


def no_steady_phase(seen):
    seen.after = None


def block_held(seen):
    engine = dataclasses.replace(seen.after.engine, used=1, free=99)
    seen.after = seen.after._replace(engine=engine)


def block_lost(seen):
    seen.after = seen.after._replace(engine=dataclasses.replace(seen.after.engine, free=99))


def memory_grows(seen):
    # Two MiB a minute, with what a busy server's memory does besides.
    seen.samples = [sample(STEADY_AT + 10.0 * n, rss=1000.0 + n / 3 + (n % 7) * 4) for n in range(100)]


def shared_memory_grows(seen):
    seen.samples = [sample(STEADY_AT + 10.0 * n, shared=40.0 + n / 3) for n in range(100)]


def memory_not_watched(seen):
    seen.samples.clear()


def files_left_open(seen):
    seen.after = seen.after._replace(sample=sample(END_AT, files=30 + checks.FILES_SERVER + 1))


def launcher_leaves_files_open(seen):
    seen.after = seen.after._replace(sample=sample(END_AT, launcher_files=12 + checks.FILES_LAUNCHER + 1))


def remains(seen):
    seen.left_behind.append("/dev/shm/ifb-1-region")


def bad_exit(seen):
    seen.exit_code = 137


def broken_off(seen):
    seen.broken_off = "TimeoutError: gone"


WRONGS = {
    ONE_END: [lost_request, ends_twice, takes_for_ever],
    EXPLAINED: [
        *(error_in_peace, error_while_only_flooded, short_answer, bad_request_answered, answer_that_cannot_be_read)
    ],
    KINDS: [kind_never_answered],
    RECOVERED: [late_readiness, late_recovery, no_recovery, nothing_done],
    TOLD: [told_late],
    TEXT: [other_text, no_probe],
    COUNTS: [engine_missed_one, engine_refused_one_more, no_steady_phase],
    POOL: [block_held, block_lost],
    MEMORY: [memory_grows, shared_memory_grows, memory_not_watched],
    FILES: [files_left_open, launcher_leaves_files_open],
    REMAINS: [remains, bad_exit],
    RUN: [broken_off],
}


def test_nothing_is_wrong_with_a_good_run_and_its_report_says_so():
    seen = good()
    found = checks.verdict(seen)
    assert {promise: problems for promise, problems in found.items() if problems} == {}
    assert found.keys() == WRONGS.keys(), "each promise has a case in which it is broken"
    told = report.as_json(seen, found)
    assert told["passed"]
    assert told["explanations"] == {
        "disturbed: engine killed": 1,
        "left": 2,
        "refused: a bad request": 1,
        "whole": 4,
    }
    assert (told["disturbances"][0]["serving_after"], told["disturbances"][0]["requests_broken"]) == (12.0, 1)
    assert "FAIL" not in report.as_text(told)


def test_the_report_tells_which_process_grows():
    seen = good()
    seen.samples = [sample(60.0 * minute, rss=1000.0 + 2.0 * minute) for minute in range(10)]
    told = report.as_json(seen, checks.verdict(seen))
    assert {name: each["per_minute"] for name, each in told["rss_of_each"].items()} == {"server": 2.0, "launcher": 0.0}
    line = "rss of server in the steady phase: 1006.0 -> 1018.0 MiB in 360 s, +2.00 MiB a minute"
    assert line in report.as_text(told)


@pytest.mark.parametrize(("promise", "wrong"), [(promise, wrong) for promise in WRONGS for wrong in WRONGS[promise]])
def test_each_wrong_is_seen(promise, wrong):
    seen = good()
    wrong(seen)
    found = checks.verdict(seen)
    assert found[promise]
    told = report.as_json(seen, found)
    assert not told["passed"]
    assert f"FAIL  {promise}" in report.as_text(told)


def test_a_full_queue_explains_a_refusal_at_any_time():
    seen = good()
    add(seen, 150.0, 150.1, Outcome.FAILED, "[request id: 7] Exceeds maximum queue size")
    assert not checks.verdict(seen)[EXPLAINED]


def test_a_disturbance_excuses_those_that_were_open_or_sent_while_it_lasted_and_nobody_else():
    seen = good()
    for began, ended, excused in [
        (KILL_AT - 5, KILL_AT - 0.1, False),
        (KILL_AT - 5, KILL_AT + 0.1, True),
        (SERVING_AT - 1, SERVING_AT + 3, True),
        (SERVING_AT + 1, SERVING_AT + 3, False),
    ]:
        before = len(checks.verdict(seen)[EXPLAINED])
        add(seen, began, ended, Outcome.FAILED, "failed to connect")
        assert (len(checks.verdict(seen)[EXPLAINED]) == before) == excused, (began, ended)


def test_what_nobody_can_know_yet_is_given_time():
    seen = good()
    seen.events.append(Event(STUCK_ENGINE, 130.0, 130.0 + 34.0, not_ready=9.0, text=seen.first_text))
    assert not checks.verdict(seen)[RECOVERED]
    seen.events.append(Event(KILLED_ENGINE, 170.0, 170.0 + 34.0, not_ready=9.0, text=seen.first_text))
    assert len(checks.verdict(seen)[RECOVERED]) == 2


def test_requests_of_the_chaos_are_not_held_against_the_engines_count():
    seen = good()
    add(seen, 20.0, 21.0)
    assert not checks.verdict(seen)[COUNTS]
    add(seen, STEADY_AT + 5, STEADY_AT + 6, phase=STEADY)
    assert checks.verdict(seen)[COUNTS]
