"""The verdict: what is wrong with what was seen, line by line, under the name of each promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from .disturbances import NOT_READY_SECONDS, SERVING_SECONDS, Event
from .explain import explanation, was_refused_as_bad
from .leaks import Point, leak
from .ledger import Ledger, Outcome, Record
from .run import STEADY, Seen
from .samples import Sample, judged
from .traffic import KINDS

TOLD_SECONDS = 10.0
"""Until everyone whose stream broke has been told."""
LONGEST_SECONDS = 180.0
PAUSES_IN_A_ROW_SECONDS = 8.0
"""What the supervisor may wait before a restart of a short run, where they come one after the other."""
RSS_MIB_PER_MINUTE, RSS_MIB_AT_ONCE = 1.0, 64.0
SHARED_MIB_PER_MINUTE, SHARED_MIB_AT_ONCE = 1.0, 32.0
FILES_SERVER, FILES_LAUNCHER = 16, 2
"""How many more files than before the steady phase, or than at the start, may be open when all is quiet."""


def verdict(seen: Seen) -> dict[str, list[str]]:
    """Promise -> what breaks it."""
    records = seen.ledger.records()
    return {
        "it was run to its end": [seen.broken_off] if seen.broken_off else [],
        "every request ended in exactly one way": list(_ends(seen.ledger)),
        "every outcome is explained": [
            f"{_named(record)}: {record.detail}" for record in records if not explanation(record, seen.events)
        ],
        "every kind of request was answered": list(_coverage(records)),
        "after each disturbance it served again, in time": list(_recoveries(seen)),
        "those whose stream broke heard of it in time": list(_told(records, seen.events)),
        "its text stayed the same": list(_texts(seen)),
        "the engine counted what the clients did": list(_counts(seen)),
        "the pool is empty at the end": list(_pool(seen)),
        "no memory leaks": list(_memory(seen)),
        "no files leak": list(_files(seen)),
        "nothing is left behind": list(_remains(seen)),
    }


def _named(record: Record) -> str:
    return f"request {record.number} ({record.kind}, {record.door}, {record.phase})"


def _ends(ledger: Ledger) -> Iterator[str]:
    for record in ledger.records():
        if record.ended is None:
            yield f"{_named(record)} has no end"
        elif record.ended - record.began > LONGEST_SECONDS:
            yield f"{_named(record)} took {record.ended - record.began:.0f} s"
    yield from (f"request {number} ended twice" for number in ledger.twice)


def _coverage(records: Sequence[Record]) -> Iterator[str]:
    good = Counter(record.kind for record in records if record.outcome in (Outcome.WHOLE, Outcome.LEFT))
    good += Counter(record.kind for record in records if was_refused_as_bad(record))
    yield from (f"{kind}: none" for kind in KINDS if not good[kind])


def _recoveries(seen: Seen) -> Iterator[str]:
    if not seen.events:
        yield "nothing was done to it"
    for event in seen.events:
        if event.ended is None:
            yield f"{event.what.name}: {event.problem}"
            continue
        serving = SERVING_SECONDS + event.what.unseen + (0.0 if seen.settings.is_long else PAUSES_IN_A_ROW_SECONDS)
        if event.what.restarts and event.ended - event.began > serving:
            yield f"{event.what.name}: served again after {event.ended - event.began:.1f} s, {serving:.0f} are allowed"
        if event.not_ready is not None and event.not_ready > NOT_READY_SECONDS + event.what.unseen:
            yield f"{event.what.name}: ready for {event.not_ready:.1f} s more"


def _told(records: Sequence[Record], events: Iterable[Event]) -> Iterator[str]:
    for event in events:
        if event.what.restarts:
            limit = event.began + event.what.unseen + TOLD_SECONDS
            for record in records:
                open_then = record.began <= event.began <= (record.ended or 0.0)
                if open_then and record.outcome is Outcome.FAILED and (record.ended or 0.0) > limit:
                    yield f"{_named(record)}: {(record.ended or 0.0) - event.began:.1f} s after: {event.what.name}"


def _texts(seen: Seen) -> Iterator[str]:
    if not seen.first_text:
        yield "the probe was not answered at the start"
    for event in seen.events:
        if event.ended is not None and event.text != seen.first_text:
            yield f"after {event.what.name}: {event.text!r}, at the start {seen.first_text!r}"


def _counts(seen: Seen) -> Iterator[str]:
    """In the steady phase, which one engine lives through; before and after it nothing is under way."""
    if seen.before is None or seen.after is None:
        yield "no steady phase"
        return
    counted = seen.after.engine.outcomes - seen.before.engine.outcomes
    steady = [record for record in seen.ledger.records() if record.phase == STEADY]
    refused = sum(map(was_refused_as_bad, steady))
    answered = sum(record.outcome in (Outcome.WHOLE, Outcome.LEFT) for record in steady)
    probes = seen.after.probes - seen.before.probes
    if not answered:
        yield "no request was answered"
    if counted["refused"] != refused:
        yield f"refused: {counted['refused']} by the engine, {refused} by the clients"
    if (ended := counted.total() - counted["refused"]) != answered + probes:
        yield f"ended: {ended} by the engine, {answered} and {probes} probes by the clients"


def _pool(seen: Seen) -> Iterator[str]:
    for name, quiet in (("after the chaos", seen.before), ("at the end", seen.after)):
        if quiet is None:
            yield f"{name}: not reached"
        elif not quiet.engine.idle:
            yield f"{name}: {quiet.engine}"


def _memory(seen: Seen) -> Iterator[str]:
    steady = judged(seen.samples, STEADY)
    if problem := leak(_points(steady, lambda sample: sample.total_rss), RSS_MIB_PER_MINUTE, RSS_MIB_AT_ONCE):
        yield f"resident memory, MiB: {problem}"
    if problem := leak(_points(steady, lambda sample: sample.shared), SHARED_MIB_PER_MINUTE, SHARED_MIB_AT_ONCE):
        yield f"shared memory, MiB: {problem}"


def _points(samples: Sequence[Sample], value: Callable[[Sample], float]) -> list[Point]:
    return [(sample.at, value(sample)) for sample in samples]


def _files(seen: Seen) -> Iterator[str]:
    if seen.before is None or seen.after is None or seen.at_start is None:
        yield "not reached"
        return
    for name, count in seen.after.sample.files.items():
        earlier = seen.at_start if name == "launcher" else seen.before.sample
        allowed = FILES_LAUNCHER if name == "launcher" else FILES_SERVER
        if count > earlier.files.get(name, 0) + allowed:
            yield f"{name}: {count} open files, before {earlier.files.get(name, 0)}"


def _remains(seen: Seen) -> Iterator[str]:
    yield from seen.left_behind
    if seen.exit_code != 0:
        yield f"the launcher ended with {seen.exit_code}"
