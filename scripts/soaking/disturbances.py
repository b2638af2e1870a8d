"""What is done to the server, and what it does then."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from scripts.launcher import leftovers
from scripts.launcher.from_outside import server_of, stub_of

from .settings import STUCK_SECONDS
from .subject import Subject
from .traffic import Traffic

ENGINE = "inflight_batcher"
HICCUP_SECONDS = 0.5
"""Less than the second for which Triton Server 2.51 waits for a lock; after one it threw an exception, and ended."""
FULL_SECONDS = 2.0
"""Less than the launcher takes to end a server that does not survive it, so that the next one finds room."""
FLOOD = 80
SETTLE_SECONDS = 0.5
"""For the launcher to see that something has died."""
NOT_READY_SECONDS, SERVING_SECONDS = 5.0, 30.0
"""Promised limits: until readiness is false, and until it serves again; from the moment when the harm can be known."""
POLL_SECONDS = 0.02
_PATIENCE = 120.0


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """do: the harm. excuses: whether requests may fail while it lasts. restarts: whether the server is to be a new one.

    unseen: seconds for which nobody can know of it.
    """

    name: str
    do: Callable[[Subject, Traffic], None]
    excuses: bool
    restarts: bool
    unseen: float = 0.0


@dataclass
class Event:
    """A disturbance that happened; moments on the ledger's clock. ended: when both doors answered again, else None.

    not_ready: seconds until readiness was false, None if it was not looked for. text: of the probe afterwards.
    """

    what: Disturbance
    began: float
    ended: float | None = None
    not_ready: float | None = None
    text: str = ""
    problem: str = ""


def perform(what: Disturbance, subject: Subject, traffic: Traffic, clock: Callable[[], float]) -> Event:
    """Do it and wait until the server serves again, or for so long that it is a failure."""
    mark = subject.mark()
    event = Event(what, clock())
    try:
        what.do(subject, traffic)
        if what.restarts:
            event.not_ready = _wait(lambda: not subject.ready(), clock, event.began)
            subject.mark(other_than=mark)
        else:
            time.sleep(SETTLE_SECONDS)
        _wait(lambda: subject.ready() and bool(_probe(subject, event)), clock, event.began)
        event.ended = clock()
    except (TimeoutError, OSError, InferenceServerException) as error:
        event.problem = f"{type(error).__name__}: {error}"
    return event


def _probe(subject: Subject, event: Event) -> str:
    event.text = subject.probe()
    return event.text


def _wait(condition: Callable[[], bool], clock: Callable[[], float], began: float) -> float:
    while not condition():
        if clock() - began > _PATIENCE:
            raise TimeoutError(f"nothing happened for {_PATIENCE:.0f} s")
        time.sleep(POLL_SECONDS)
    return clock() - began


def _send(number: int, model: str) -> Callable[[Subject, Traffic], None]:
    def do(subject: Subject, _traffic: Traffic) -> None:
        mark = subject.mark()
        leftovers.send(mark, stub_of(mark, model) if model else server_of(mark), number)

    return do


def _hiccup(subject: Subject, traffic: Traffic) -> None:
    _send(signal.SIGSTOP, ENGINE)(subject, traffic)
    time.sleep(HICCUP_SECONDS)
    _send(signal.SIGCONT, ENGINE)(subject, traffic)


def _reload(subject: Subject, _traffic: Traffic) -> None:
    with grpcclient.InferenceServerClient(subject.grpc_url) as client:
        client.unload_model(ENGINE)
        client.load_model(ENGINE)


def _fill_shared_memory(subject: Subject, _traffic: Traffic) -> None:
    ballast = subject.shared_memory / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        time.sleep(FULL_SECONDS)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(ballast)


KILLED_ENGINE = Disturbance(name="engine killed", do=_send(signal.SIGKILL, ENGINE), excuses=True, restarts=True)
STUCK_ENGINE = Disturbance(
    name="engine stuck", do=_send(signal.SIGSTOP, ENGINE), excuses=True, restarts=True, unseen=STUCK_SECONDS + 2
)
KILLED_TEXT = Disturbance(
    name="detokenizer killed", do=_send(signal.SIGKILL, "postprocessing"), excuses=True, restarts=True
)
KILLED_SERVER = Disturbance(name="server killed", do=_send(signal.SIGKILL, ""), excuses=True, restarts=True)
RELOAD = Disturbance(name="engine unloaded and loaded", do=_reload, excuses=True, restarts=False)
FULL_SHM = Disturbance(name="shared memory full", do=_fill_shared_memory, excuses=True, restarts=False)
HICCUP = Disturbance(name="engine stopped for a moment", do=_hiccup, excuses=False, restarts=False)
FLOODED = Disturbance(name="flood", do=lambda _, traffic: traffic.flood(FLOOD), excuses=False, restarts=False)

HARSH = (KILLED_ENGINE, STUCK_ENGINE, KILLED_TEXT, KILLED_SERVER, RELOAD, FULL_SHM, HICCUP, FLOODED)
MILD = (HICCUP, FLOODED)
"""Those that no request may suffer from."""
