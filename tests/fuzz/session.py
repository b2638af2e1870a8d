"""A run: cases several at a time, a question with a known answer after each, the server's state after every hundred."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tests.fuzz.cases import Case, numbered
from tests.fuzz.judge import problems_of
from tests.fuzz.sending import Bounds, Outcome, Sender
from tests.fuzz.server_state import problems_at_rest, processes, resident_mib
from tests.fuzz.wire import WireTensor, packed
from tests.server_fixture import RunningServer

PROMPT = "The capital of France is"
PROBE_TOKENS = 3
SECONDS = 60.0
"""That any request may take."""
_BETWEEN_CHECKS = 100
_TRTLLM = {"text_input": ("BYTES", PROMPT), "max_tokens": ("INT32", 3), "exclude_input_in_output": ("BOOL", True)}
_PROBES: Mapping[str, Mapping[str, tuple[str, Any]]] = {
    "ensemble": _TRTLLM,
    "tensorrt_llm_bls": _TRTLLM,
    "ensemble_uint32": _TRTLLM | {"max_tokens": ("UINT32", 3)},
    "vllm_model": {
        "text_input": ("BYTES", PROMPT),
        "sampling_parameters": ("BYTES", '{"max_tokens": 3, "temperature": 0}'),
        "exclude_input_in_output": ("BOOL", True),
    },
    "llmapi": {
        "text_input": ("BYTES", PROMPT),
        "sampling_param_max_tokens": ("INT32", 3),
        "sampling_param_exclude_input_from_output": ("BOOL", True),
    },
}
_UNBATCHED = ("vllm_model", "llmapi")


def probe(model: str) -> Case:
    """The question of PROMPT to a text entry."""
    shape = (1,) if model in _UNBATCHED else (1, 1)
    tensors = tuple(
        WireTensor(name, datatype, shape, packed(datatype, [value.encode() if datatype == "BYTES" else value]))
        for name, (datatype, value) in _PROBES[model].items()
    )
    return Case(model=model, door="grpc", sound=True, tensors=tensors)


@dataclass
class Report:
    """failures: (number of the case, what was wrong, the case). counts: (entry, what came of it) -> cases."""

    failures: list[tuple[int, str, str]] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    grown: dict[str, int] = field(default_factory=dict)


class Session:
    """expected: what the server answers to the question. at_once: requests under way at a time."""

    def __init__(self, server: RunningServer, expected: str, *, at_once: int = 4) -> None:
        self._server = server
        self._expected = expected.encode()
        self._at_once = at_once
        self._bounds = Bounds(SECONDS)
        self._sender = Sender(server, self._bounds)
        self.report = Report()

    def close(self) -> None:
        """Close connections and threads."""
        self._sender.close()
        self._bounds.close()

    def run(self, seed: int, start: int, count: int) -> Report:
        """Send the cases of a run from ``start`` on; ends early where the server has died."""
        self.ask_all(start)
        before, memory = processes(self._server), resident_mib(self._server)
        with ThreadPoolExecutor(self._at_once) as pool:
            for some in _chunks(numbered(seed, start, count), _BETWEEN_CHECKS):
                began = time.monotonic()
                list(pool.map(self._one, some))
                self._check(some[-1][0], before)
                print(f"fuzz: to {some[-1][0] + 1}, {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
                if self._server.process.poll() is not None:
                    break
        after = resident_mib(self._server)
        self.report.grown = {label: after.get(label, 0) - size for label, size in memory.items()}
        return self.report

    def _one(self, numbered_case: tuple[int, Case]) -> None:
        number, case = numbered_case
        outcome = self._sender.send(case)
        for problem in problems_of(case, outcome):
            self._fail(number, problem, str(case))
        self.report.counts[case.model, _kind(outcome)] += 1
        self.report.errors.update(message[:60] for message in outcome.errors)
        self._ask("ensemble", number)

    def ask_all(self, number: int) -> None:
        """The question to every text entry."""
        for model in _PROBES:
            self._ask(model, number)

    def _ask(self, model: str, number: int) -> None:
        outcome = self._sender.send(probe(model))
        if outcome.errors or outcome.late or b"".join(outcome.texts) != self._expected:
            self._fail(number, f"the question to {model} is answered with {outcome}", "")

    def _check(self, number: int, before: Mapping[int, str]) -> None:
        if self._server.process.poll() is not None:
            self._fail(number, f"the server has ended: {self._server.log()[-2000:]}", "")
            return
        if (now := processes(self._server)) != before:
            self._fail(number, f"processes were {before}, are {now}", "")
        self.ask_all(number)
        for problem in problems_at_rest(self._server):
            self._fail(number, problem, "")

    def _fail(self, number: int, problem: str, case: str) -> None:
        self.report.failures.append((number, problem, case))
        print(f"fuzz: case {number}: {problem}\n    {case}", file=sys.stderr, flush=True)


def _kind(outcome: Outcome) -> str:
    if outcome.left:
        return "left"
    return "refused" if outcome.errors or outcome.broken else "answered"


def _chunks(cases: Iterator[tuple[int, Case]], size: int) -> Iterable[list[tuple[int, Case]]]:
    while some := list(islice(cases, size)):
        yield some
