"""What came of a soak: a JSON object with everything, and a page of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from .disturbances import Event
from .explain import explanation
from .leaks import growth
from .ledger import Record
from .run import STEADY, Quiet, Seen
from .samples import Sample, judged

SHOWN = 20
"""Problems of one promise that the text shows."""


def as_json(seen: Seen, verdict: dict[str, list[str]]) -> dict[str, Any]:
    """Figures in seconds and MiB."""
    records = seen.ledger.records()
    began = records[0].began if records else 0.0
    settings = seen.settings
    return {
        "minutes": settings.minutes,
        "seed": settings.seed,
        "clients": settings.clients,
        "shared_memory_bounded": seen.bounded,
        "passed": not any(verdict.values()),
        "verdict": verdict,
        "requests": len(records),
        "explanations": _counted(explanation(record, seen.events) or "unexplained" for record in records),
        "outcomes": _counted(f"{record.kind}, {record.door}: {record.outcome or 'open'}" for record in records),
        "levels": _counted(f"level {record.level}" for record in records),
        "longest_seconds": max((record.ended - record.began for record in records if record.ended), default=None),
        "disturbances": [
            {"name": event.what.name, "at": _rounded(event.began - began), **_times(event, records)}
            for event in seen.events
        ],
        "rss": _series(seen, lambda sample: sample.total_rss),
        "rss_of_each": {
            name: _series(seen, lambda sample, name=name: sample.rss.get(name, 0.0))
            for name in sorted({name for sample in judged(seen.samples, STEADY) for name in sample.rss})
        },
        "shared": _series(seen, lambda sample: sample.shared),
        "before_steady": _quiet(seen.before),
        "after_steady": _quiet(seen.after),
        "samples": [
            {"at": _rounded(each.at - began), "phase": each.phase, "rss": _all_rounded(each.rss), "shared": each.shared}
            for each in seen.samples
        ],
    }  # fmt: skip


def as_text(report: dict[str, Any]) -> str:
    """The verdict and the figures that it rests on."""
    lines = [f"{report['minutes']:g} minutes, seed {report['seed']}, {report['requests']} requests"]
    lines += [f"  {count:6d}  {what}" for what, count in report["explanations"].items()]
    lines += ["disturbances: seconds until not ready, until it served again, requests that broke"]
    lines += [
        f"  {each['at']:7.1f} s  {each['name']}: {each['not_ready_after'] or '-'}, {each['serving_after'] or '-'}, "
        f"{each['requests_broken']}"
        for each in report["disturbances"]
    ]
    series = {"rss": report["rss"]} | {f"rss of {name}": each for name, each in report["rss_of_each"].items()}
    for name, found in (series | {"shared": report["shared"]}).items():
        if found:
            lines.append(
                f"{name} in the steady phase: {found['first']:.1f} -> {found['last']:.1f} MiB in "
                f"{found['seconds']:.0f} s, {found['per_minute']:+.2f} MiB a minute"
            )
    for promise, problems in report["verdict"].items():
        lines.append(f"{'FAIL' if problems else 'ok  '}  {promise}")
        lines += [f"        {problem}" for problem in problems[:SHOWN]]
        lines += [f"        and {len(problems) - SHOWN} more"] * (len(problems) > SHOWN)
    return "\n".join(lines)


def _counted(things: Any) -> dict[str, int]:
    return dict(sorted(Counter(things).items()))


def _times(event: Event, records: Sequence[Record]) -> dict[str, Any]:
    return {
        "not_ready_after": _rounded(event.not_ready),
        "serving_after": _rounded(None if event.ended is None else event.ended - event.began),
        "requests_broken": sum(explanation(record, [event]).startswith("disturbed") for record in records),
    }


def _series(seen: Seen, value: Callable[[Sample], float]) -> dict[str, float] | None:
    try:
        return growth([(sample.at, value(sample)) for sample in judged(seen.samples, STEADY)])._asdict()
    except ValueError:
        return None


def _quiet(quiet: Quiet | None) -> dict[str, Any] | None:
    if quiet is None:
        return None
    sample = quiet.sample
    return {"rss": sample.rss, "files": sample.files, "shared": sample.shared, "outcomes": dict(quiet.engine.outcomes)}


def _all_rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in values.items()}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
