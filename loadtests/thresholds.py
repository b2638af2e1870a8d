"""What is good enough: thresholds from a file, held against the figures of a run."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STATISTICS = ("count", "average", "median", "p90", "p95", "p99", "fail_ratio")
KEYS = {"profile", "entry", "statistic", "max", "min"}


class ThresholdError(ValueError):
    """A file that does not say what is good enough; one line."""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """`statistic` of every entry of that name, whatever its door, is at most `most` or at least `least`."""

    entry: str
    statistic: str
    most: float | None = None
    least: float | None = None

    def __str__(self) -> str:
        bound = f"at most {self.most:g}" if self.most is not None else f"at least {self.least:g}"
        return f"{self.entry}: {self.statistic} {bound}"

    def held(self, value: float) -> bool:
        """Whether `value` is good enough; what is not a number never is."""
        return value <= self.most if self.most is not None else value >= (self.least or 0.0)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of Locust's table: its type (a door, or `figure`), its name, and its value for each of STATISTICS."""

    kind: str
    name: str
    value: Callable[[str], float]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One threshold against one entry; value None when the run has no such entry, which is a miss."""

    threshold: Threshold
    kind: str
    value: float | None

    @property
    def passed(self) -> bool:
        """Whether the threshold holds."""
        return self.value is not None and self.threshold.held(self.value)

    def __str__(self) -> str:
        found = "no figures" if self.value is None else f"{self.value:.4g} ({self.kind})"
        return f"{'pass' if self.passed else 'MISS'}  {self.threshold}: {found}"


def load(path: Path, profile: str) -> list[Threshold]:
    """The thresholds of a profile. Raises ThresholdError, also when there is none: a run must be able to fail."""
    try:
        rows = tomllib.loads(path.read_text())["threshold"]
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise ThresholdError(f"{path}: {error!r}") from error
    found = [_threshold(path, row) for row in rows]
    chosen = [threshold for row, threshold in zip(rows, found, strict=True) if row["profile"] in (profile, "all")]
    if not chosen:
        raise ThresholdError(f"{path}: no threshold for the profile {profile}")
    return chosen


def judge(thresholds: Sequence[Threshold], entries: Iterable[Entry]) -> list[Verdict]:
    """One verdict for each threshold and entry of its name."""
    known = list(entries)
    verdicts = []
    for threshold in thresholds:
        mine = [entry for entry in known if entry.name == threshold.entry]
        verdicts += [
            Verdict(threshold=threshold, kind=entry.kind, value=entry.value(threshold.statistic)) for entry in mine
        ] or [Verdict(threshold=threshold, kind="", value=None)]
    return verdicts


def _threshold(path: Path, row: dict[str, Any]) -> Threshold:
    if unknown := sorted(set(row) - KEYS):
        raise ThresholdError(f"{path}: unknown key {unknown[0]!r} in {row}")
    if missing := sorted({"profile", "entry", "statistic"} - set(row)):
        raise ThresholdError(f"{path}: no {missing[0]!r} in {row}")
    if row["statistic"] not in STATISTICS:
        raise ThresholdError(f"{path}: statistic {row['statistic']!r} is none of {', '.join(STATISTICS)}")
    if ("max" in row) == ("min" in row):
        raise ThresholdError(f"{path}: {row} needs one of max and min")
    return Threshold(entry=row["entry"], statistic=row["statistic"], most=row.get("max"), least=row.get("min"))
