"""How long an urgent request waits for its first token on a full server, beside the same on an idle one."""

from __future__ import annotations

import json
import random
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from generate_stream import Client
from tqdm import tqdm

from .timing import percentiles

LOW, URGENT = 3, 1


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Of one run. slots: the server's; low requests fill them and ``backlog`` more wait."""

    slots: int = 8
    backlog: int = 64
    low_tokens: int = 200
    urgent_tokens: int = 8
    arrivals: int = 20
    pause: float = 0.5
    seed: int = 1


class PriorityRun:
    """Idle arrivals, then the flood, then arrivals during it; every low text is compared with its lone run."""

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
        return self._line(idle, urgent, unchanged, total)

    def _arrivals(self, lows: list[Future[str]]) -> list[float]:
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
        quiet, busy = percentiles(idle), percentiles(urgent)
        return {
            "bench": "priority",
            "slots": self._setting.slots,
            "backlog": self._setting.backlog,
            "arrivals": len(urgent),
            "idle_ttft_ms": quiet,
            "urgent_ttft_ms": busy,
            "ratio": {key: round(busy[key] / quiet[key], 2) for key in busy},
            "low_texts_unchanged": f"{unchanged}/{total}",
        }


def report(client: Client, setting: Setting) -> None:
    """Run and print."""
    print(json.dumps(PriorityRun(client, setting).run()), flush=True)
