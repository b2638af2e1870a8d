"""Why a request ended as it did: as it was meant to, by a rule that everyone is told of, or in a disturbance."""

from __future__ import annotations

from collections.abc import Iterable

from .disturbances import Event
from .ledger import Outcome, Record
from .traffic import BAD, BAD_FIELD, CLIENT_FAILED

QUEUE_FULL = "Exceeds maximum queue size"
SLACK_SECONDS = 0.5
"""After the probe that ends a disturbance was answered."""


def explanation(record: Record, events: Iterable[Event]) -> str:
    """In a few words; empty if nothing explains it. A request that has not ended is no matter of this."""
    if record.outcome is None:
        return "open"
    if record.outcome is not Outcome.FAILED:
        return record.outcome.value if record.kind != BAD else ""
    if was_refused_as_bad(record):
        return "refused: a bad request"
    if QUEUE_FULL in record.detail:
        return "refused: the queue was full"
    return _excuse(record, events)


def was_refused_as_bad(record: Record) -> bool:
    """Whether it was a bad request and was told what is bad about it."""
    return record.kind == BAD and record.outcome is Outcome.FAILED and BAD_FIELD in record.detail


def _excuse(record: Record, events: Iterable[Event]) -> str:
    if record.ended is None or CLIENT_FAILED in record.detail:
        return ""
    for event in events:
        over = float("inf") if event.ended is None else event.ended + SLACK_SECONDS
        if event.what.excuses and record.ended >= event.began and record.began <= over:
            return f"disturbed: {event.what.name}"
    return ""
