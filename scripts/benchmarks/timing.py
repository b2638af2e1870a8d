"""When each token of each request came, and the JSON line made of it."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

Workload = Mapping[str, list[tuple[list[int], int]]]
"""Workload name -> requests, each its prompt's ids and the number of tokens to generate."""


@dataclass
class RequestTimes:
    """sent: when the request was handed over. arrivals: (time, number of new tokens) per response."""

    sent: float = 0.0
    arrivals: list[tuple[float, int]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens generated."""
        return sum(count for _, count in self.arrivals)

    @property
    def ttft(self) -> float:
        """Seconds from sending to the first token."""
        return self.arrivals[0][0] - self.sent

    @property
    def gaps(self) -> list[float]:
        """Seconds between neighbouring responses."""
        return [b[0] - a[0] for a, b in zip(self.arrivals, self.arrivals[1:], strict=False)]


class Progress:
    """A bar over the tokens of a workload, on a terminal only."""

    def __init__(self, name: str, total: int) -> None:
        self._bar = tqdm(total=total, desc=name, unit="tok", disable=None, leave=False)
        self._lock = threading.Lock()

    def add(self, tokens: int) -> None:
        """Count tokens; from any thread."""
        with self._lock:
            self._bar.update(tokens)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()


def load_workload(path: Path) -> Workload:
    """A file of workloads: ``{name: [[prompt ids], output length], ...}``."""
    workload: Workload = {
        name: [(ids, length) for ids, length in requests] for name, requests in json.loads(path.read_text()).items()
    }
    return workload


def percentiles(seconds: list[float]) -> dict[str, float]:
    """p50 and p99 in milliseconds; empty when there is nothing to say."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    last = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return {"p50": round(statistics.median(ordered) * 1e3, 1), "p99": round(last * 1e3, 1)}


Runner = Callable[[list[tuple[list[int], int]], Progress], tuple[list[RequestTimes], int]]
"""Runs requests, all handed over at once; gives their times and the number of prompt tokens."""


def measure(peer: str, workload: Workload, run: Runner, only: list[str]) -> None:
    """Warm up on the smallest workload turned round, so that no prefix of it stays; run each once and print."""
    smallest = min(workload.values(), key=lambda requests: sum(len(ids) + length for ids, length in requests))
    _timed("warm-up", [(ids[::-1], length) for ids, length in smallest], run)
    for name, requests in workload.items():
        if only and name not in only:
            continue
        times, prompt_tokens, seconds = _timed(name, requests, run)
        out = sum(t.tokens for t in times)
        line = {
            "peer": peer,
            "workload": name,
            "out_tokens": out,
            "prompt_tokens": prompt_tokens,
            "seconds": round(seconds, 2),
            "out_tok_s": round(out / seconds, 1),
            "total_tok_s": round((out + prompt_tokens) / seconds, 1),
            "ttft_ms": percentiles([t.ttft for t in times]),
            "inter_token_ms": percentiles([gap for t in times for gap in t.gaps]),
        }
        print(json.dumps(line), flush=True)


def _timed(name: str, requests: list[tuple[list[int], int]], run: Runner) -> tuple[list[RequestTimes], int, float]:
    progress = Progress(name, sum(length for _, length in requests))
    start = time.perf_counter()
    try:
        times, prompt_tokens = run(requests, progress)
    finally:
        progress.close()
    return times, prompt_tokens, time.perf_counter() - start
