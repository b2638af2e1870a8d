"""A soak as it would have been seen, without a server: everything well, for one thing at a time to be made wrong."""

from __future__ import annotations

from collections import Counter

from scripts.soaking.disturbances import FLOODED, KILLED_ENGINE, Event
from scripts.soaking.engine_figures import EngineFigures
from scripts.soaking.ledger import Ledger, Outcome
from scripts.soaking.run import CHAOS, STEADY, Quiet, Seen
from scripts.soaking.samples import Sample
from scripts.soaking.settings import Settings
from scripts.soaking.traffic import BAD, BAD_FIELD, KINDS

TEXT = " Paris."
KILL_AT, SERVING_AT, STEADY_AT, END_AT = 100.0, 112.0, 200.0, 1200.0


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def add(seen, began, ended, outcome=Outcome.WHOLE, detail="", kind="usual", phase=CHAOS):
    """One request more; ended None: it has no end."""
    clock, ledger = seen.ledger.clock, seen.ledger
    clock.now, ledger.phase = began, phase
    record = ledger.begin(kind, "grpc", 2)
    if ended is not None:
        clock.now = ended
        ledger.end(record, outcome, detail)
    return record


def sample(at, phase=STEADY, rss=1000.0, shared=40.0, files=30, launcher_files=12):
    return Sample(
        at, phase, {"server": rss, "launcher": 50.0}, {"server": files, "launcher": launcher_files}, shared
    )  # fmt: skip


def figures(**changes):
    """Of an idle engine."""
    idle = {"running": 0, "waiting": 0, "swapped": 0, "used": 0, "cached": 28, "free": 100, "blocks": 128}
    return EngineFigures(**{"outcomes": Counter(), **idle, **changes})


def good(minutes=30.0):
    """Every kind answered in the steady phase, one request broken by the one kill."""
    seen = Seen(Settings(minutes=minutes, seed=0, model="smollm2"), bounded=True, ledger=Ledger(Clock()))
    kill = Event(KILLED_ENGINE, KILL_AT, SERVING_AT, not_ready=1.0, text=TEXT)
    flood = Event(FLOODED, STEADY_AT + 20, STEADY_AT + 24, text=TEXT)
    seen.events = [kill, flood]
    seen.first_text, seen.exit_code = TEXT, 0
    add(seen, KILL_AT - 2, KILL_AT + 4, Outcome.FAILED, "Socket closed")
    for kind in KINDS:
        bad = kind == BAD
        outcome = Outcome.FAILED if bad else Outcome.LEFT if "leaves" in kind else Outcome.WHOLE
        add(seen, STEADY_AT + 1, STEADY_AT + 2, outcome, f"{BAD_FIELD}: too many" if bad else "", kind, STEADY)
    seen.at_start = sample(0.0, "", files=28)
    seen.samples = [sample(STEADY_AT + 10.0 * n) for n in range(100)]
    seen.before = Quiet(sample(STEADY_AT - 1), figures(outcomes=Counter(length=5)), probes=4)
    ended = Counter(length=5 + 4 + 2, cancelled=2, refused=1)
    seen.after = Quiet(sample(END_AT), figures(outcomes=ended), probes=6)
    return seen
