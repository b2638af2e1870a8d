"""The engine without Triton Server: what the server's side can at best reach."""

from __future__ import annotations

import itertools
import time

from backend.config import EngineConfig
from backend.engine import Engine
from backend.engine_builder import build_engine
from backend.request import Request, Sequence
from backend.sampling_params import SamplingParams

from .timing import Progress, RequestTimes


class BareEngine:
    """Runs requests on one engine in this process, greedy, end of sequence ignored."""

    def __init__(self, parameters: dict[str, str]) -> None:
        self._engine: Engine = build_engine(EngineConfig.from_parameters(parameters)).engine
        self._numbers = itertools.count(1)

    def run(self, requests: list[tuple[list[int], int]], progress: Progress) -> tuple[list[RequestTimes], int]:
        """All requests handed over at once; steps until none is left."""
        times = {}
        for ids, length in requests:
            sequence = self._add(ids, length)
            times[sequence] = RequestTimes(sent=time.perf_counter())
        while self._engine.has_work:
            outputs = self._engine.step()
            now = time.perf_counter()
            for sequence, _ in outputs:
                times[sequence].arrivals.append((now, 1))
            progress.add(len(outputs))
        return list(times.values()), sum(len(ids) for ids, _ in requests)

    def _add(self, ids: list[int], length: int) -> Sequence:
        number = next(self._numbers)
        sampling = SamplingParams(max_tokens=length)
        return self._engine.add(
            Request(request_id=number, prompt=tuple(ids), sampling=sampling, level=2, arrival=number)
        )
