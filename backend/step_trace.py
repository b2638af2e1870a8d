"""StepTraceFile: writes down what an engine does, step by step; scripts/timeline draws it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from backend.engine import Engine, StepTrace
from backend.request import Sequence
from backend.scheduler.life import Change


class StepTraceFile:
    """One JSON line per finished step: step, started, seconds, work (see StepTrace) and events.

    events: what happened to requests since the line before, each with ``at`` (seconds, the clock of ``started``),
    ``id`` and ``what`` (a Change); of a queued one also level, prompt and max_tokens; of an ended one reason and output
    (tokens). In the line of a step stand the ends that it brought, and what was decided while it ran: of admissions
    and preemptions those for the next step.
    """

    def __init__(self, path: Path) -> None:
        """Appends to the file. Raises OSError if it cannot be written."""
        self._file = path.open("a", buffering=1)  # open as long as the engine lives
        self._events: list[dict[str, Any]] = []

    def attach(self, engine: Engine) -> None:
        """Write down the steps of this engine from now on."""
        engine.watch = self.step
        engine.scheduler.population.watch = self.change

    def step(self, trace: StepTrace) -> None:
        """A step has finished."""
        events, self._events = self._events, []
        self._file.write(json.dumps(trace._asdict() | {"events": events}) + "\n")

    def change(self, sequence: Sequence, change: Change) -> None:
        """Something happened to a request."""
        request = sequence.request
        event: dict[str, Any] = {"at": time.perf_counter(), "id": request.request_id, "what": change}
        if change is Change.QUEUED:
            event |= {"level": request.level, "prompt": len(request.prompt), "max_tokens": request.sampling.max_tokens}
        elif change is Change.ENDED:
            event |= {"reason": sequence.finish_reason, "output": sequence.num_output}
        self._events.append(event)
