"""The phases of a soak, and everything that was seen in them."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from . import plan
from .disturbances import Event, perform
from .engine_figures import EngineFigures
from .ledger import Ledger
from .samples import Sample, Sampler
from .settings import Settings
from .subject import Subject, may_bound_shared_memory
from .traffic import Traffic

CHAOS, STEADY, QUIET = "chaos", "steady", "quiet"
QUIET_SECONDS = 120.0
"""For what is under way to end, once nothing more is sent; what has not is lost."""
HELD_SECONDS = 0.3
"""For clients that were just about to send."""
SETTLED_SECONDS = 20.0
SAMPLE_SECONDS, SHORT_SAMPLE_SECONDS = 5.0, 1.0
PUBLISHED_SECONDS = 1.0
"""The page of metrics is that much behind at the most; gauges may be published before counters."""
LEAST_STEADY_SECONDS = 20.0
POLL_SECONDS = 0.05

Tell = Callable[[str], None]


class Quiet(NamedTuple):
    """The server with nothing under way. probes: answered so far, each a request that is in no ledger."""

    sample: Sample
    engine: EngineFigures
    probes: int


@dataclass
class Seen:
    """Everything that is judged."""

    settings: Settings
    bounded: bool
    ledger: Ledger = field(default_factory=Ledger)
    events: list[Event] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    first_text: str = ""
    at_start: Sample | None = None
    before: Quiet | None = None
    after: Quiet | None = None
    left_behind: list[str] = field(default_factory=list)
    exit_code: int | None = None
    broken_off: str = ""


def soak(settings: Settings, log: Path, tell: Tell) -> Seen:
    """Run it. Raises OSError if the server cannot be started; what it says goes to `log`."""
    seen = Seen(settings, may_bound_shared_memory())
    subject = Subject(settings.model, log, bounded=seen.bounded)
    subject.start()
    tell("the server is ready")
    try:
        _phases(seen, subject, tell)
    except (OSError, KeyError) as error:  # it is gone, or does not say what it should
        seen.broken_off = f"{type(error).__name__}: {error}"
    finally:
        seen.exit_code = subject.stop()
    seen.left_behind += subject.left_behind()
    return seen


def _phases(seen: Seen, subject: Subject, tell: Tell) -> None:
    settings, ledger = seen.settings, seen.ledger
    traffic = Traffic(ledger, subject.grpc_url, subject.http_url, settings.seed, settings.clients)
    sampler = Sampler(subject, ledger, SAMPLE_SECONDS if settings.is_long else SHORT_SAMPLE_SECONDS)
    seen.first_text, seen.at_start = subject.probe(), sampler.now()
    began = ledger.clock()
    traffic.start()
    sampler.start()
    try:
        tell(CHAOS)
        ledger.phase = CHAOS
        traffic.go()
        steps = plan.chaos(settings, Random(settings.seed), bounded=seen.bounded)
        _disturb(seen, subject, traffic, tell, steps, began + settings.seconds_of_chaos)
        seen.before = _quiet(traffic, sampler, subject)
        seen.left_behind += subject.left_behind()
        tell(STEADY)
        ledger.phase = STEADY
        traffic.go()
        until = max(began + settings.minutes * 60, ledger.clock() + LEAST_STEADY_SECONDS)
        _disturb(seen, subject, traffic, tell, plan.steady(Random(settings.seed)), until)
        seen.after = _quiet(traffic, sampler, subject)
    finally:
        traffic.close()
        sampler.close()
        seen.samples = sampler.samples


def _disturb(
    seen: Seen, subject: Subject, traffic: Traffic, tell: Tell, steps: Iterator[plan.Step], until: float
) -> None:
    """One after the other until that moment; the one round of a short run is gone through to its end."""
    clock, restarted = seen.ledger.clock, 0.0
    endless = seen.settings.is_long or seen.ledger.phase == STEADY
    for step in steps:
        due = max(clock() + step.pause, restarted + step.after_restart)
        if endless and due > until:
            break
        _sleep_until(due, clock)
        event = perform(step.what, subject, traffic, clock)
        seen.events.append(event)
        if event.ended is None:
            raise OSError(f"{step.what.name}: {event.problem}")
        tell(f"{step.what.name}: {event.ended - event.began:.1f} s")
        if step.what.excuses:
            restarted = event.ended
    _sleep_until(until, clock)


def _quiet(traffic: Traffic, sampler: Sampler, subject: Subject) -> Quiet:
    """Hold the clients until nothing is under way. What has no end by then is left open."""
    traffic.hold()
    ledger = sampler.ledger
    time.sleep(HELD_SECONDS)
    deadline = ledger.clock() + QUIET_SECONDS
    while ledger.num_open and ledger.clock() < deadline:
        time.sleep(POLL_SECONDS)
    ledger.phase = QUIET
    settled = ledger.clock() + SETTLED_SECONDS
    while not EngineFigures.parsed(_page(subject)).idle and ledger.clock() < settled:
        time.sleep(POLL_SECONDS)
    time.sleep(PUBLISHED_SECONDS)
    return Quiet(sampler.now(), EngineFigures.parsed(_page(subject)), subject.answered_probes)


def _page(subject: Subject) -> str:
    with urllib.request.urlopen(f"http://{subject.host}:{subject.metrics_port}/metrics", timeout=10) as reply:
        return str(reply.read().decode())


def _sleep_until(moment: float, clock: Callable[[], float]) -> None:
    while (left := moment - clock()) > 0:
        time.sleep(min(left, 1.0))
