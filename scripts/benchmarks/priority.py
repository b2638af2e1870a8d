"""How long an urgent request waits for its first token on a full server, beside the same on an idle one."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from generate_stream import Client, ServerError
from tqdm import tqdm

from .timing import percentiles

LOW, URGENT = 3, 1
QUEUE_FULL = "Exceeds maximum queue size"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Of one run. slots: the server's; low requests fill them and ``backlog`` more wait.

    flood: so many requests at once after that, more than the server's queue is to hold; 0 for none.
    """

    slots: int = 8
    backlog: int = 64
    flood: int = 0
    flood_tokens: int = 32
    low_tokens: int = 200
    urgent_tokens: int = 8
    arrivals: int = 20
    pause: float = 0.5
    seed: int = 1


class PriorityRun:
    """Idle arrivals, then arrivals over a backlog, then over a flood; low texts are compared with their lone runs."""

    def __init__(self, client: Client, setting: Setting) -> None:
        self._client = client
        self._setting = setting
        self._rng = random.Random(setting.seed)
        # Few different prompts, so that each one's lone run can be had in reasonable time.
        self._low_prompts = [self._prompt(40) for _ in range(8)]

    def _prompt(self, words: int) -> str:
        return " ".join(f"{self._rng.randrange(10, 99)}" for _ in range(words))

    def run(self) -> dict[str, object]:
        """The JSON line."""
        lone = [self._low(prompt) for prompt in tqdm(self._low_prompts, desc="lone runs", disable=None, leave=False)]
        idle = [self._urgent() for _ in range(self._setting.arrivals)]
        total = self._setting.slots + self._setting.backlog
        with ThreadPoolExecutor(total) as pool:
            lows = [pool.submit(self._low, self._low_prompts[n % len(lone)]) for n in range(total)]
            time.sleep(3.0)
            urgent = self._arrivals(lows)
            texts = [low.result() for low in lows]
        unchanged = sum(text == lone[n % len(lone)] for n, text in enumerate(texts))
        flood = {"flood": self._flood(idle)} if self._setting.flood else {}
        return {**self._line(idle, urgent, unchanged, total), **flood}

    def _flood(self, idle: list[float]) -> dict[str, object]:
        """All at once over one stream; what the queue cannot hold is refused while urgent requests come."""
        with ThreadPoolExecutor(1) as pool:
            flooding = pool.submit(self._flooding)
            time.sleep(0.5)
            urgent = self._arrivals([flooding])
            served, refused = flooding.result()
        return {
            "requests": self._setting.flood,
            "served": served,
            "refused": len(refused),
            "last_refused_after_ms": round(max(refused, default=0.0) * 1e3),
            "arrivals": len(urgent),
            **self._compared(idle, urgent),
        }

    def _flooding(self) -> tuple[int, list[float]]:
        """How many were served, all to their end; and seconds until each refusal for want of room."""
        tokens, count = self._setting.flood_tokens, self._setting.flood
        inputs = [self._inputs(self._prompt(8), tokens, LOW) for _ in range(count)]
        begun, refused = time.perf_counter(), []
        for finished in self._client.generate_all(inputs, LOW):
            if QUEUE_FULL in finished.error:
                refused.append(time.perf_counter() - begun)
            elif finished.error or finished.tokens != tokens:
                raise ServerError(f"a request of the flood got {finished.tokens} of {tokens} tokens {finished.error}")
        return count - len(refused), refused

    def _arrivals(self, lows: Sequence[Future[Any]]) -> list[float]:
        times = []
        for _ in tqdm(range(self._setting.arrivals), desc="urgent arrivals", disable=None, leave=False):
            if all(low.done() for low in lows):
                print("note: the flood ended before all urgent requests had arrived", file=sys.stderr)
                break
            times.append(self._urgent())
            time.sleep(self._setting.pause)
        return times

    def _low(self, prompt: str) -> str:
        inputs = self._inputs(prompt, self._setting.low_tokens, LOW)
        return "".join(piece.text for piece in self._client.generate(inputs, LOW))

    def _urgent(self) -> float:
        """Seconds from sending to the first token."""
        inputs = self._inputs(self._prompt(24), self._setting.urgent_tokens, URGENT)
        start = time.perf_counter()
        pieces = self._client.generate(inputs, URGENT)
        next(pieces)
        seconds = time.perf_counter() - start
        for _ in pieces:
            pass
        return seconds

    def _inputs(self, prompt: str, tokens: int, level: int) -> dict[str, object]:
        return {
            "text_input": prompt.encode(),
            "max_tokens": tokens,
            "stream": True,
            "ignore_eos": True,
            "exclude_input_in_output": True,
            "priority": level,
        }

    def _line(self, idle: list[float], urgent: list[float], unchanged: int, total: int) -> dict[str, object]:
        return {
            "bench": "priority",
            "slots": self._setting.slots,
            "backlog": self._setting.backlog,
            "arrivals": len(urgent),
            "idle_ttft_ms": percentiles(idle),
            **self._compared(idle, urgent),
            "low_texts_unchanged": f"{unchanged}/{total}",
        }

    def _compared(self, idle: list[float], urgent: list[float]) -> dict[str, object]:
        quiet, busy = percentiles(idle), percentiles(urgent)
        return {"urgent_ttft_ms": busy, "ratio": {key: round(busy[key] / quiet[key], 2) for key in busy}}


def report(client: Client, setting: Setting) -> None:
    """Run and print."""
    print(json.dumps(PriorityRun(client, setting).run()), flush=True)
